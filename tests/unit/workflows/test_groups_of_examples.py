"""Random labels for each group: 50 % within the interval of every command, with the group given.

The control is the same call without it, which remembers the groups and scores near 100 %.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from made_scenes import KINDS, scenes
from made_tables import Frame
from widefield.audits.audit import audit
from widefield.audits.bounds import probe_tasks
from widefield.audits.verdict import audit_task
from widefield.data import Dataset, open_dataset
from widefield.inference.open_encoder import open_encoder
from widefield.inference.overlap import copy_note
from widefield.inference.splits import open_train_test
from widefield.probes import pixels
from widefield.probes.compare import compare
from widefield.train.manifest import Growth, Manifest
from widefield.train.run_dir import RunFolder
from widefield.workflows.classify import classify
from widefield.workflows.explore import explore
from widefield.workflows.pretrain import pretrain
from widefield.workflows.probe import probe


def table(made: dict[str, Any]) -> Frame:
    names = [f"row {i}" for i in range(len(made["x"]))]
    return Frame(path=names, label=made["label"].tolist(), scene=made["scene"].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_probe(kind: str) -> None:
    made = scenes(kind)
    options: dict[str, Any] = {"floors": False, "quiet": True, "labels": table(made)}
    grouped = probe("pixels", made["x"], group="scene", **options)
    assert list(grouped.tasks) == ["label"]
    found = grouped.tasks["label"].score
    low, high = found.interval
    assert low <= 0.5 <= high
    assert high - low > 0.4  # six groups
    assert not any("near-copies" in note for note in grouped.notes)
    plain = probe("pixels", made["x"], task="label", **options)
    control = plain.tasks["label"].score
    assert control.interval[0] > 0.8
    (note,) = (note for note in plain.notes if "near-copies" in note)
    count, scored = int(note.split()[0]), len(control)
    assert f"{count} of {scored} test images have near-copies among the examples" in note
    assert count > 0.8 * scored
    low, high = map(float, note.partition("[")[2].partition("]")[0].split(", "))
    assert low <= 50 <= high
    assert note.endswith("Give group for frames, slices or tiles of one source")


def test_the_score_without_a_few_copies_is_that_of_the_others(tmp_path: Path) -> None:
    made = scenes("frames", groups=240, each=1)
    x, y = made["x"], made["label"]
    np.savez(tmp_path / "train.npz", x=x[:160], label=y[:160])
    test_x = np.concatenate([x[:30], x[160:]])
    test_y = np.concatenate([y[:30], y[160:]])
    test_x[:30, 0, 0] ^= 1  # no exact copies
    np.savez(tmp_path / "test.npz", x=test_x, label=test_y)
    options: dict[str, Any] = {"floors": False, "quiet": True}
    report = probe("pixels", tmp_path / "test.npz", train_data=tmp_path / "train.npz", **options)
    np.savez(tmp_path / "clean.npz", x=x[160:], label=y[160:])
    clean = probe("pixels", tmp_path / "clean.npz", train_data=tmp_path / "train.npz", **options)
    score = clean.tasks["label"].score
    value, low, high = (f"{100 * x:.1f}" for x in score.estimate())
    values = f"label {value} % [{low}, {high}]"
    assert report.notes[0].startswith("30 of 110 test images have near-copies")
    assert values in report.notes[0]
    assert not any("near-copies" in note for note in clean.notes)  # the control


def test_classify() -> None:
    made = scenes("slices", seed=2)
    grouped = classify("pixels", made["x"], labels=table(made), group="scene", quiet=True)
    found = grouped.cross_validation
    assert found is not None
    assert found.interval[0] <= 0.5 <= found.interval[1]
    plain = classify("pixels", made["x"], labels=table(made), quiet=True)
    assert plain.cross_validation is not None
    assert plain.cross_validation.interval[0] > 0.8
    (note,) = (note for note in plain.notes if "near-copies" in note)
    assert int(note.split()[0]) > 200
    apart = float(note.partition("without them: ")[2].partition(" %")[0])
    assert 25 < apart < 75


def test_classify_reports_exact_copies() -> None:
    made = scenes("frames", groups=120, each=1)
    x = np.concatenate([made["x"], made["x"][:3]])
    labels = {f"row {i}": str(k) for i, k in enumerate([*made["label"], *made["label"][:3]])}
    found = classify("pixels", x, labels=labels, quiet=True)
    (note,) = (note for note in found.notes if "near-copies" in note)
    assert note.startswith("6 of 123 labeled images have near-copies (6 exact ones)")
    control = classify("pixels", x[:120], labels=dict(list(labels.items())[:120]), quiet=True)
    assert not any("near-copies" in note for note in control.notes)


def test_audit() -> None:
    made = scenes("frames", groups=40)
    for group in ("scene", None):
        arrays = made if group else {name: made[name] for name in ("x", "label")}
        data = open_train_test(
            open_encoder("pixels"), arrays, group=group, max_examples=None, seed=0, quiet=True
        )
        result = probe_tasks(pixels, data)["label"]
        found = audit_task("label", result, {"pixels": result}, result, classes=2)
        assert (found.low <= 0.5 <= found.high) == (group is not None)
        wide = found.difference_from(found)
        assert (wide.low, wide.high) == (0, 0)


def test_an_audit_of_one_test_group_is_refused_before_the_work(tmp_path: Path) -> None:
    rows = np.arange(200)
    images = np.random.default_rng(0).integers(0, 256, (200, 16, 16, 3), dtype=np.uint8)
    made = {"x": images, "label": rows % 2, "scene": rows // 10}
    with pytest.raises(ValueError, match=r"images to score on are of one group.*max_examples"):
        audit("pixels", made, group="scene", max_examples=8, cache=tmp_path, quiet=True)
    assert not list(tmp_path.iterdir())


def test_the_whole_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widefield.audits.bounds.CEILING_STEPS", 8)
    monkeypatch.setattr("widefield.audits.tasks.NUM_SEEDS", 1)
    made = scenes("takes", groups=30, each=4)
    options: dict[str, Any] = {"cache": tmp_path, "quiet": True}
    found = audit("pixels", made, group="scene", compare="pixels", **options)
    task = found.tasks["label"]
    assert list(found.tasks) == ["label"]
    assert task.low <= 0.5 <= task.high
    assert task.difference_from(found.compared["pixels (compared)"]["label"]).low == 0
    assert found.comparisons == {} or found.comparisons["pixels (compared)"].groups == 6
    assert "6 test groups are too few for reliable intervals: score on 10 or more" in found.notes
    del made["scene"]
    extractor = open_encoder("pixels")
    plain = open_train_test(extractor, made, max_examples=None, seed=0, quiet=True)
    (note,) = copy_note(plain, partial(probe_tasks, extractor.features))
    assert "test images have near-copies" in note
    assert "near-copies" not in " ".join(found.notes)


def test_the_comparison_of_a_run() -> None:
    made = scenes("takes", each=5)
    features = partial(pixels, size=4)
    images, labels = made["x"], {"label": made["label"]}
    grouped = compare(
        features, features, images, labels, groups=made["scene"], baseline="untrained"
    )
    low, high = grouped.linear_interval["label"]
    assert low <= 0.5 <= high
    assert "; 30 groups, each scored as a whole" in grouped.lines()[0]
    assert f"[{100 * low:.0f}, {100 * high:.0f}]" in grouped.lines()[2]
    assert grouped.copies is None
    plain = compare(features, features, images, labels, baseline="untrained")
    assert plain.linear_interval["label"][0] > 0.8
    assert plain.copies is not None
    assert plain.lines()[-1] == plain.copies
    assert "images have near-copies among the examples" in plain.copies
    count = int(plain.copies.split()[0])
    assert count > 120


def test_a_run_records_its_group_and_resumes_with_it(tmp_path: Path) -> None:
    made = scenes("frames", groups=26, each=4)
    np.savez(tmp_path / "mine.npz", **made)
    data, out = f"{tmp_path}/mine.npz:train", tmp_path / "run"
    options: dict[str, Any] = {"out": out, "quiet": True, "encoder": "resnet-tiny"}
    done = pretrain(data, group="scene", epochs=1, **options)
    folder = RunFolder(path=out)
    assert folder.group() == "scene"
    assert done.comparison is None or done.comparison.groups == 21
    with pytest.raises(ValueError, match="has group 'scene', not 'label': resume without group"):
        pretrain(data, group="label", resume=True, epochs=2, **options)
    # The run's own group splits its data: no test image is one of training.
    report = probe(out, f"{tmp_path}/mine.npz:test", floors=False, quiet=True)
    train = open_dataset(data, group="scene")
    score = report.tasks["label"].score
    assert (score.train_examples, len(score)) == (len(train), 104 - len(train))
    assert report.train_test_overlap == 0
    if done.comparison is not None:
        assert json.loads((folder.path / "comparison.json").read_text())["groups"] == 21


def test_explore_compares_examples_with_other_groups_alone() -> None:
    """Without groups, each one is a group of near-duplicates that agrees with itself."""
    made = scenes("frames", groups=14, each=5)
    scene, labels = made["scene"], table(made)
    grouped = explore("pixels", made["x"], labels=labels, group="scene", quiet=True)
    plain = explore("pixels", made["x"], labels=labels, quiet=True)
    assert (scene[grouped.graph.index] != scene[:, None]).all()
    assert (scene[plain.graph.index[:, :3]] == scene[:, None]).mean() > 0.9
    assert not grouped.duplicates
    assert len(plain.duplicates) > 10
    assert grouped.suspects["label"].agreement < 0.8 < plain.suspects["label"].agreement
    assert "scene" not in grouped.suspects
    few = {"x": made["x"][:7], "scene": scene[:7]}
    with pytest.raises(ValueError, match="7 images: explore needs at least 3 outside each group"):
        explore("pixels", few, group="scene", quiet=True)


def test_numbers_with_decimals_are_groups() -> None:
    """Such as times in seconds; as a task they would be predicted."""
    made = scenes("takes")
    options: dict[str, Any] = {"floors": False, "quiet": True}
    times = table({**made, "scene": 0.5 + 1.25 * made["scene"]})
    found, known = (
        probe("pixels", made["x"], labels=labels, group="scene", **options)
        for labels in (times, table(made))
    )
    assert list(found.tasks) == ["label"]
    assert not any("numbers" in note for note in found.notes)
    first, second = found.tasks["label"].score, known.tasks["label"].score
    assert first.interval[0] <= 0.5 <= first.interval[1]
    assert len(first) == len(second)
    control = probe("pixels", made["x"], labels=times, task=None, **options)
    assert list(control.tasks) == ["label", "scene"]
    assert control.tasks["scene"].score.measure == "R2"
    assert any("'scene' is a number of each example" in note for note in control.notes)


def test_groups_of_one_key_in_two_folders_are_reported() -> None:
    made = scenes("frames")
    report = probe(
        "pixels",
        scenes("frames", seed=2),
        train_data=made,
        group="scene",
        floors=False,
        quiet=True,
    )
    assert any(
        note.startswith("30 groups of the test images have the key") for note in report.notes
    )
    score = report.tasks["label"].score
    assert score.interval[0] <= 0.5 <= score.interval[1]


def test_a_run_on_a_split_without_groups_needs_the_data(tmp_path: Path) -> None:
    made = scenes("frames", groups=10, each=4)
    np.savez(tmp_path / "mine.npz", **made)
    data, out = f"{tmp_path}/mine.npz:train", tmp_path / "run"
    pretrain(data, out=out, quiet=True, epochs=1, encoder="resnet-tiny")
    options: dict[str, Any] = {"group": "scene", "floors": False, "quiet": True}
    with pytest.raises(ValueError, match="was split without these groups when the run began"):
        probe(out, **options)
    report = probe(out, f"{tmp_path}/mine.npz:test", train_data=data, **options)
    score = report.tasks["label"].score
    assert (score.train_examples, len(score)) == (32, 8)


def test_groups_that_join_may_divide_the_others_anew(tmp_path: Path) -> None:
    """An example that moved to the test split is not called removed without saying so."""
    levels = np.arange(240, dtype=np.uint8)[:, None, None, None]
    made = {"x": np.broadcast_to(levels, (240, 8, 8, 3))}
    made["scene"] = np.array([f"x{i // 4:02}" for i in range(240)])
    manifest = Manifest(tmp_path / "manifest.parquet")

    def opened(count: int) -> Dataset:
        np.savez(tmp_path / "mine.npz", **{name: each[:count] for name, each in made.items()})
        return open_dataset(f"{tmp_path}/mine.npz:train", group="scene")

    before = opened(40)
    manifest.write(before, Growth(first=len(before)))
    assert manifest.check_data(opened(40)) == 0
    with pytest.raises(ValueError, match=r"is gone, .*; leave out new groups, which can move"):
        manifest.check_data(manifest.in_order(opened(240)), allow_new=True)
