"""Run folders that were edited, damaged, half copied or are somebody else's."""

import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from inspect import unwrap
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runs import SMALL, Killed, assert_same, die_at, images, last_checkpoint
from widefield.config.recipes import make_recipe
from widefield.core.plain_yaml import MAX_BYTES, MAX_DEPTH, read_yaml, yaml_text
from widefield.train import checkpoint
from widefield.train.run_dir import FORMAT, RunFolder
from widefield.train.step import StepMetrics
from widefield.workflows import start
from widefield.workflows.pretrain import pretrain

IMAGES = images()
MODULE = unwrap(pretrain).__globals__


def content(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """A run that was trained for some epochs."""

    @cache
    def train(epochs: int) -> Path:
        run = tmp_path_factory.mktemp("runs") / "whole"
        pretrain(IMAGES, out=run, **{**SMALL, "epochs": epochs})
        return run

    return train


@pytest.fixture
def run(tmp_path: Path, whole: Callable[[int], Path]) -> Path:
    """A copy of a run of two epochs, to damage."""
    return Path(shutil.copytree(whole(2), tmp_path / "run"))


def refused(run: Path, match: str, data: Any = IMAGES, **options: Any) -> None:
    """Resume is refused in one line, and leaves every file as it was."""
    before = content(run)
    with pytest.raises(ValueError, match=match) as error:
        pretrain(data, out=run, resume=True, quiet=True, **options)
    assert "\n" not in str(error.value)
    assert content(run) == before


@pytest.mark.parametrize(
    ("line", "edited", "words"),
    [
        ("seed: 0", "seed: 1", "seed was 0 and is 1"),
        ("batch_size: 16", "batch_size: 32", "batch_size was 16 and is 32"),
        ("storage: host", "storage: disk", "storage was 'host' and is 'disk'"),
        ("lr: .*", "lr: 0.5", "lr was .* and is 0.5"),
        ("drop_last: true", "drop_last: false", "drop_last was True and is False"),
        ("name: moderate", "name: flip", "views was"),
        ("image_size: 16", "image_size: 8", "image_size was 16 and is 8"),
        ("max_examples: 64", "max_examples: 32", "max_examples was 64 and is 32"),
    ],
)
def test_a_setting_that_was_edited_since_the_checkpoint(
    run: Path, line: str, edited: str, words: str
) -> None:
    """Control: without the edit the same call goes on, which the test after this one does."""
    file = run / "run.yaml"
    text, count = re.subn(line, edited, file.read_text(), count=1)
    assert count == 1
    file.write_text(text)
    refused(run, words, epochs=3)


def test_a_run_that_nobody_touched_goes_on_and_epochs_may_be_edited(
    run: Path, whole: Callable[[int], Path]
) -> None:
    file = run / "run.yaml"
    file.write_text(file.read_text().replace("epochs: 2", "epochs: 3"))
    assert pretrain(IMAGES, out=run, resume=True, quiet=True).steps == 12
    assert RunFolder(path=run).recipe().epochs == 3


@settings(max_examples=40, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_in_a_checkpoint_is_noticed(
    whole: Callable[[int], Path], place: float, bit: int
) -> None:
    """Control: torch itself reads most of such files."""
    file = whole(2) / "checkpoints" / "last.pt"
    flipped = bytearray(file.read_bytes())
    flipped[int(place * len(flipped))] ^= 1 << bit
    damaged = file.parents[2] / "damaged.pt"
    damaged.write_bytes(flipped)
    with pytest.raises(ValueError, match="not a whole widefield checkpoint"):
        checkpoint.load(damaged, torch.device("cpu"))


def test_torch_does_not_notice_a_flipped_bit(run: Path) -> None:
    """Why there is a checksum: the weights in the middle of the file."""
    file = run / "checkpoints" / "last.pt"
    checkpoint.load(file, torch.device("cpu"))
    flipped = bytearray(file.read_bytes())
    flipped[len(flipped) // 2] ^= 1
    file.write_bytes(flipped)
    torch.load(file, weights_only=True)
    refused(run, "not a whole widefield checkpoint", epochs=3)


def damage_last(change: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda run: change(run / "checkpoints" / "last.pt")


def rewrite(manifest: Path, metadata: dict[str, str]) -> None:
    """Leave what the manifest says of the examples, and not since when the run has them."""
    pq.write_table(pq.read_table(manifest).replace_schema_metadata(metadata), manifest)


def grow(run: Path, growth: str) -> None:
    rewrite(run / "manifest.parquet", {"widefield": growth})


def dangle(file: Path) -> None:
    file.unlink()
    file.symlink_to("gone.pt")


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def finished_long_ago(file: Path) -> None:
    """Write epoch 10^9, with a checksum that fits."""
    state = checkpoint.load(file, torch.device("cpu"))
    checkpoint.save(file, state | {"epoch": 10**9})


def another_shape(file: Path) -> None:
    state = checkpoint.load(file, torch.device("cpu"))
    model = {key: value[:1] for key, value in state["model"].items() if value.ndim}
    checkpoint.save(file, state | {"model": model})


def without(name: str) -> Callable[[Path], None]:
    def drop(file: Path) -> None:
        state = checkpoint.load(file, torch.device("cpu"))
        checkpoint.save(file, {k: v for k, v in state.items() if k != name})

    return drop


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (damage_last(Path.unlink), "has trained, and its last.pt is gone"),
        (damage_last(dangle), r"not a whole widefield checkpoint \(No such file"),
        (damage_last(truncate), "not a whole widefield checkpoint"),
        (damage_last(as_folder), r"not a whole widefield checkpoint \(Is a directory"),
        (damage_last(lambda file: file.write_bytes(b"")), "not a whole widefield checkpoint"),
        (damage_last(finished_long_ago), "is not a checkpoint of this run"),
        (damage_last(another_shape), "is not a checkpoint of this run"),
        *[
            (damage_last(without(name)), "not a checkpoint of this run|was edited|was changed")
            for name in ("model", "optimizer", "views", "epoch", "epoch_step", "step", "world")
        ],
        (damage_last(without("run")), "was edited since the checkpoint"),
        (lambda run: (run / "manifest.parquet").unlink(), "manifest.parquet is missing"),
        (
            lambda run: (run / "manifest.parquet").write_bytes(b"PAR1"),
            "manifest.parquet is damaged",
        ),
        (lambda run: (run / "manifest.parquet").write_bytes(b"mine"), "was changed since"),
        (lambda run: rewrite(run / "manifest.parquet", {}), "was changed since"),
        (lambda run: grow(run, "[1]"), "was changed since"),
        (lambda run: grow(run, '{"first": "x"}'), "was changed since"),
        (lambda run: grow(run, '{"first": 0}'), "was changed since"),
        (lambda run: grow(run, '{"first": 9, "step": -1}'), "was changed since"),
        (lambda run: grow(run, '{"first": 9, "step": 3}'), "was changed since"),
        (lambda run: grow(run, '{"first": 9, "warmup_epochs": -1}'), "was changed since"),
        (lambda run: shutil.rmtree(run / "checkpoints"), "has trained, and its last.pt is gone"),
        (
            lambda run: next((run / "checkpoints").glob("last-step-*")).unlink(),
            "not a whole widefield checkpoint",
        ),
    ],
)
def test_a_checkpoint_that_is_gone_or_no_checkpoint(
    run: Path, change: Callable[[Path], object], words: str
) -> None:
    change(run)
    refused(run, words, epochs=3)


def test_other_data_do_not_replace_an_encoder_that_lost_its_checkpoint(run: Path) -> None:
    (run / "checkpoints" / "last.pt").unlink()
    refused(run, "has trained", data={"x": 255 - IMAGES["x"]})


def test_other_labels_of_the_same_images(run: Path) -> None:
    refused(run, "labels of task 'y' differ", data={**IMAGES, "y": 1 - IMAGES["y"]}, epochs=3)


def test_a_resume_without_a_checkpoint_says_so(
    tmp_path: Path, whole: Callable[[int], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(Killed):
        pretrain(IMAGES, out=run, on_step=die_at(2), **{**SMALL, "epochs": 2})
    refused(run, "other pixels", data={**IMAGES, "x": 255 - IMAGES["x"]})
    pretrain(IMAGES, out=run, resume=True)
    assert "has no checkpoint yet: the run starts again" in capsys.readouterr().err
    assert_same(whole(2), run)


def test_labels_with_names_of_the_manifest(tmp_path: Path) -> None:
    names = ("path", "digest", "index", "skipped", "label_path")
    data = {"x": IMAGES["x"], **dict.fromkeys(names, IMAGES["y"])}
    pretrain(data, out=tmp_path / "run", **{**SMALL, "epochs": 1})
    assert pretrain(data, out=tmp_path / "run", resume=True, epochs=2, quiet=True).finished


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-7] + b"\xff\x00\n1,2",
        lambda text: text.replace(b"\n2,", b"\ntwo,"),
        lambda text: b"nothing",
        lambda text: text.replace(b",", b";"),
        lambda text: b'"' + text,
        lambda text: b"",
    ],
)
def test_a_damaged_log_does_not_block_a_sound_run(
    run: Path, damage: Callable[[bytes], bytes]
) -> None:
    file = run / "metrics.csv"
    text = damage(file.read_bytes())
    file.write_bytes(text)
    assert pretrain(IMAGES, out=run, resume=True, epochs=3, quiet=True).finished
    assert (run / "report.html").exists()
    rows = file.read_text().splitlines()
    assert rows[-1].startswith("3,")
    kept = run / "metrics.damaged.csv"
    assert not kept.exists() or kept.read_bytes() == text


def test_a_refused_run_leaves_its_folder_free(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    with pytest.raises(ValueError, match="batch_size is 999"):
        pretrain(IMAGES, out=run, **{**SMALL, "batch_size": 999})
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize(
    ("error", "place"),
    [(ValueError, "host"), (RuntimeError, "disk"), (OSError, "disk"), (KeyboardInterrupt, "host")],
)
def test_what_ends_before_the_first_step_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], place: str
) -> None:
    def fail(*args: object) -> None:
        raise error("at once")

    monkeypatch.setattr("widefield.train.step.TrainStep.__call__", fail)
    run = tmp_path / "run"
    with pytest.raises(ValueError if error is OSError else error, match="at once"):
        pretrain(IMAGES, out=run, head_storage=place, **SMALL)
    assert not run.exists()


def test_a_run_that_finished_meanwhile_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[int], Path]
) -> None:
    """It ends while this one still reads its images."""
    finished, run, read = whole(2), tmp_path / "run", start.open_dataset

    def slowly(*args: object, **options: object) -> object:
        shutil.copytree(finished, run)
        return read(*args, **options)

    monkeypatch.setattr(start, "open_dataset", slowly)
    with pytest.raises(ValueError, match="already holds a run"):
        pretrain(IMAGES, out=run, **SMALL)
    assert content(run) == content(finished)


def test_drafts_that_a_killed_process_left_are_swept(run: Path) -> None:
    left = [run / ".0123456789abcdef.draft", run / "checkpoints" / ".fedcba9876543210.draft"]
    for file in left:
        file.write_bytes(b"half")
    pretrain(IMAGES, out=run, resume=True, epochs=3, quiet=True)
    assert not any(file.exists() for file in left)


def test_a_checkpoint_folder_that_cannot_be_listed(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").symlink_to("gone")
    with pytest.raises(ValueError, match="checkpoints: No such file"):
        pretrain(IMAGES, out=run, resume=True, quiet=True)
    assert os.path.islink(run / "checkpoints")


BOMB = "a: &a [x, x]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "alias"),
        ("a: &a [*a]", "alias"),
        ("[" * 5000 + "]" * 5000, "nested more than"),
        ("a: 1\na: 2", "a name stands twice"),
        ("!!python/object/apply:os.system ['touch pwned']", "could not determine a constructor"),
        ("a: \x00", "special characters"),
        ("a: " + "9" * 10000, "integer string conversion"),
        ("? {b: 1}\n: 2", "unhashable"),
    ],
)
def test_yaml_that_is_no_list_of_settings(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=words) as error:
        read_yaml(file)
    assert "\n" not in str(error.value)


def test_yaml_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    with file.open("wb") as opened:
        opened.truncate(MAX_BYTES + 1)
    with pytest.raises(ValueError, match="larger than"):
        read_yaml(file)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(PLAIN)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    file = tmp_path_factory.getbasetemp() / "round.yaml"
    file.write_text(yaml_text([value, value]), encoding="utf-8")
    assert read_yaml(file) == [value, value]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_recipe_with_a_value_of_another_kind_gets_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any node of the settings becomes any plain value."""
    folder = RunFolder(path=tmp_path_factory.mktemp("edited"))
    recipe = make_recipe(views=data.draw(st.sampled_from(["expert", "viewmaker+noise"])))
    settings: dict[str, Any] = {"format": FORMAT, "data": "photos", "recipe": recipe.to_dict()}
    parent, depth = settings, data.draw(st.integers(0, 3))
    key: Any = data.draw(st.sampled_from(sorted(parent)))
    for _ in range(depth):
        child = parent[key]
        if not isinstance(child, dict | list) or not child:
            break
        parent = child
        names = sorted(parent) if isinstance(parent, dict) else range(len(parent))
        key = data.draw(st.sampled_from(list(names)))
    value = data.draw(PLAIN)
    parent[key] = value
    folder.write_settings(settings)
    try:
        folder.recipe()
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017


def test_the_depth_of_a_recipe_is_well_below_the_limit() -> None:
    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth, inner), default=0) if isinstance(value, dict | list) else 0

    assert depth(make_recipe().to_dict()) < MAX_DEPTH / 2


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path) -> None:
    """The loss of an epoch says nothing of its last step."""
    run = tmp_path / "run"

    def spoil(metrics: StepMetrics) -> None:
        if metrics.step == 8:
            next(done.parameters()).data.fill_(float("nan"))

    build = MODULE["PretrainRun"]
    done: torch.nn.Module

    def keep(*args: Any) -> Any:
        nonlocal done
        made = build(*args)
        done = made.encoder
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODULE, "PretrainRun", keep)
        with pytest.raises(ValueError, match=r"the weights are NaN or infinite after step 8 \("):
            pretrain(IMAGES, out=run, on_step=spoil, **SMALL)
    assert last_checkpoint(run)["step"] == 4
