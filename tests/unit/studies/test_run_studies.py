"""The command of the studies, as a user types it: what it trains, keeps, resumes and refuses."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import widefield
from studies import __main__ as command
from studies import calibration, feature_dropout, registry, runner, seen, trained
from studies.packs import Packs, generated
from studies.study import TINY, Arm, Finding, Gate, Scale, Study, difference
from widefield.config.recipes import make_recipe
from widefield.data import open_dataset

SMALL = {"batch_size": 24, "image_size": 16, "projector_width": 32, "encoder": "resnet-tiny"}


def make_study(epochs: int = 1, seeds: tuple[int, ...] = (0, 1)) -> Study:
    return Study(
        id="toy",
        question="Does training change anything?",
        scales={"cpu": Scale(images=48, epochs=epochs, seeds=seeds, minutes=1, settings=SMALL)},
        arms={
            "trained": Arm(data="cifar10", settings={"method": "simclr"}),
            "untrained": Arm(data="cifar10", settings=None),
        },
        measure=lambda run: {"parts": float(run.folder is not None)},
        findings=(
            Finding(id="toy", criterion="one", value=difference("parts", "trained", "untrained")),
        ),
    )


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    return generated(tmp_path_factory.mktemp("packs"))


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Study:
    study = make_study()
    monkeypatch.setattr(registry, "studies", lambda: {"toy": study})
    return study


def run(study: Study, packs: Packs, tmp_path: Path) -> runner.Results:
    return runner.run_study(
        study,
        "cpu",
        packs=packs,
        work=tmp_path / "work",
        processes=1,
        results=tmp_path / "results",
        progress=lambda *_: None,
    )


@pytest.fixture(scope="module")
def finished(packs: Packs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the toy was run."""
    study, folder = make_study(), tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "studies", lambda: {"toy": study})
        run(study, packs, folder)
    return folder


@pytest.fixture
def kept(toy: Study, packs: Packs, finished: Path, tmp_path: Path) -> runner.Results:
    """The results of the toy, in a folder of their own."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return run(toy, packs, tmp_path)


def test_runs_are_trained_once_and_the_findings_decided(
    toy: Study,
    packs: Packs,
    kept: runner.Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert list(kept.runs) == [
        f"{arm} | seed {seed}" for seed in (0, 1) for arm in ("trained", "untrained")
    ]
    assert kept.content["findings"]["toy"]["verdict"] == "holds"
    assert {"machine", "versions", "sizes", "seconds"} <= kept.content.keys()
    monkeypatch.setattr(trained.widefield, "pretrain", None)  # nothing is trained again
    assert run(toy, packs, tmp_path).runs == kept.runs
    (tmp_path / "results" / "toy.cpu.json").unlink()
    assert run(toy, packs, tmp_path).content["findings"] == kept.content["findings"]


def test_runs_end_with_the_encoder_of_pretrain_without_its_comparison(
    packs: Packs, tmp_path: Path
) -> None:
    study = make_study(epochs=2)
    arm, scale = study.arms["trained"], study.scales["cpu"]
    own = trained.train(arm, scale, packs, 0, tmp_path / "own")
    settings = trained.run_settings(arm, scale, 0) | {"views": trained.VIEWS}
    data = trained.data_of(arm, scale, packs, 0)
    whole = widefield.pretrain(data, out=tmp_path / "whole", quiet=True, **settings)
    assert (whole.run / "readout.safetensors").exists()
    assert own.folder is not None
    assert not (own.folder / "readout.safetensors").exists()
    assert own.cost["effective rank"] == round(whole.health.effective_rank, 1)
    assert own.projected is not None
    weights, others = (encoder.state_dict() for encoder in (own.encoder, whole.encoder))
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_runs_that_another_study_measured_alike_are_taken_from_it(
    toy: Study,
    packs: Packs,
    kept: runner.Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of another measure or of other sizes, or for a gate, are trained: the controls."""
    alike = replace(toy, id="alike")
    others = (
        replace(toy, id="measured otherwise", measure=lambda run: {"parts": 2.0}),
        replace(toy, id="with a gate", gate=Gate()),
        replace(make_study(epochs=2), id="longer", measure=toy.measure),
    )
    every = {study.id: study for study in (toy, alike, *others)}
    monkeypatch.setattr(registry, "studies", lambda: every)
    monkeypatch.setattr(runner, "perform", lambda *_: {"measured": {}, "seconds": 0.0})
    assert run(alike, packs, tmp_path).runs == kept.runs
    for study in others:
        assert all(not found["measured"] for found in run(study, packs, tmp_path).runs.values())


def test_results_of_other_versions_are_not_mixed(
    toy: Study, packs: Packs, kept: runner.Results, tmp_path: Path
) -> None:
    begun_otherwise(kept, versions={"widefield": "0.0.1", "torch": "1"})
    with pytest.raises(ValueError, match=r"toy\.cpu\.json was begun with widefield 0.0.1.*--anew"):
        run(toy, packs, tmp_path)


def begun_otherwise(kept: runner.Results, **changes: object) -> None:
    """Leave a run out, and change what the file says of the others."""
    content = json.loads(kept.path.read_text())
    del content["runs"]["trained | seed 1"]
    kept.path.write_text(json.dumps(content | changes))


def test_results_of_other_images_are_not_mixed(
    toy: Study, packs: Packs, kept: runner.Results, tmp_path: Path
) -> None:
    sizes = kept.content["sizes"] | {"epochs": 7}
    begun_otherwise(kept, sizes={k: v for k, v in sizes.items() if k != runner.SUBSET})
    begun = r"toy\.cpu\.json was begun with epochs 7, images drawn one for all seeds and this is"
    with pytest.raises(ValueError, match=begun):
        run(toy, packs, tmp_path)


def test_a_study_goes_on_without_running_a_seed_again(
    toy: Study,
    packs: Packs,
    kept: runner.Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun_otherwise(kept, findings={})
    performed: list[str] = []
    perform = runner.perform

    def counting(task: runner.Task, packs: Packs, work: Path) -> dict[str, object]:
        performed.append(task.key)
        return perform(task, packs, work)

    monkeypatch.setattr(runner, "perform", counting)
    assert run(toy, packs, tmp_path).content["findings"] == kept.content["findings"]
    assert performed == ["trained | seed 1"]


def test_results_of_another_criterion_are_refused_by_name_until_they_are_judged(
    toy: Study,
    packs: Packs,
    kept: runner.Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stricter = replace(toy, findings=(replace(toy.findings[0], at_least=2.0),))
    monkeypatch.setattr(registry, "studies", lambda: {"toy": stricter})
    with pytest.raises(
        ValueError, match=r"toy\.cpu\.json has another criterion of toy: .*judge toy"
    ):
        run(stricter, packs, tmp_path)
    assert command.main(["judge", "toy", "--results", str(tmp_path / "results")]) == 0
    again = run(stricter, packs, tmp_path)
    assert again.runs == kept.runs
    assert again.content["findings"]["toy"]["verdict"] == "does not hold"


def test_every_seed_draws_other_images(packs: Packs) -> None:
    scale = Scale(images=40, epochs=1, minutes=1, validation=20)
    names = []
    for seed in (0, 1):
        drawn = trained.Trained(Arm(data="cifar10", settings=None), scale, packs, seed, None)
        train, validation = drawn.train_set(), drawn.validation_set()
        names.append({image.tobytes() for image in train.images})
        assert len(train) == 40
        assert len(validation) == 20
        assert not names[-1] & {image.tobytes() for image in validation.images}
    assert len(names[0] & names[1]) < 20
    sound = trained.Trained(Arm(data="fsdd", settings=None), scale, packs, 1, None).train_set()
    assert sound.labels["class"].tolist() != sorted(sound.labels["class"])


def test_an_encoder_at_a_gate_is_scored_on_validation_images(packs: Packs, tmp_path: Path) -> None:
    study = replace(make_study(seeds=(0,)), gate=Gate(), measure=trained.probes)
    study = replace(study, scales={"cpu": replace(study.scales["cpu"], validation=24)}, findings=())
    registry_of = {"toy": study}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "studies", lambda: registry_of)
        kept = run(study, packs, tmp_path)
    assert all(0 <= each["validation"]["class, %"] <= 100 for each in kept.runs.values())
    assert kept.content["gate"]["arms"]["trained"]["rates"] == 1


def test_runs_are_kept_in_the_order_of_the_arms(toy: Study, tmp_path: Path) -> None:
    keys = [task.key for task in runner.tasks(toy, "cpu", {})]
    kept = runner.Results(toy, "cpu", folder=tmp_path)
    for key in reversed(keys):  # parallel runs end in any order
        kept.add(key, {"measured": {"parts": 0.0}, "seconds": 1.0})
    assert list(runner.read(kept.path)["runs"]) == keys


def test_damaged_results_are_named(toy: Study, tmp_path: Path) -> None:
    (tmp_path / "toy.cpu.json").write_text('{"runs": {')
    with pytest.raises(ValueError, match=r"toy\.cpu\.json is damaged: .*--anew"):
        runner.Results(toy, "cpu", folder=tmp_path)


def test_a_killed_study_goes_on_where_it_was(
    packs: Packs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is killed in the middle of a training; the next one resumes from its checkpoint."""
    study = make_study(epochs=12, seeds=(0,))
    monkeypatch.setattr(registry, "studies", lambda: {"toy": study})
    child = os.fork()
    if child == 0:
        run(study, packs, tmp_path)
        os._exit(1)  # it was not killed in time
    began = time.monotonic()
    while not list((tmp_path / "work").glob("*/checkpoints/last.pt")):
        assert time.monotonic() - began < 120
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert not (tmp_path / "results" / "toy.cpu.json").exists()
    assert run(study, packs, tmp_path).runs["trained | seed 0"]["cost"]["resumed"] is True


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run SD-T99", "unknown study 'SD-T99': did you mean 'SD-T"),
        ("run nothing", "unknown study 'nothing': python -m studies list lists them"),
        ("run SD-C", "SD-C is no study: `widefield pretrain cifar10 "),
        ("run SD-T3 --scale huge", "unknown scale 'huge': known: tiny, cpu, gpu"),
        ("run SD-T3 --processes 0", "--processes must be 1 or more, got 0"),
        ("run SD-T3 --scale tiny --work /dev/null", "[Errno 20] Not a directory: '/dev/null/"),
        ("run SD-T3 --data nowhere", "nowhere/cifar100_train.npz is not there: name the folder"),
        ("run run-length --scale gpu", "run-length has no scale gpu: "),
        ("run maps", "maps is closed: git checkout 251f4776 has its code"),
    ],
)
def test_bad_input_is_one_line(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--work", str(tmp_path / "w"), "--results", str(tmp_path / "r"), "--processes", "1"]
    run, *rest = words.split()
    assert command.main([run, *folders, *rest]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(message)
    assert "\n" not in error


def test_every_row_of_the_papers_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    ids = [row["id"] for row in listed]
    assert len(ids) == len(set(ids))
    assert {row["id"] for row in registry.rows()} <= set(ids)
    by_study = {row["study"] for row in registry.rows() if "study" in row}
    own = {s.id for s in registry.studies().values()} - by_study
    assert own <= set(ids)


def test_a_dry_run_trains_nothing_and_names_the_time(
    toy: Study, packs: Packs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finished run in the folder of results is not counted."""
    words = f"run toy --dry-run --data {packs.folder} --work {tmp_path / 'w'}"
    words += f" --results {tmp_path / 'r'}"
    assert command.main([*words.split(), "--processes", "1"]) == 0
    assert "toy: 4 of 4 runs, 0 min" in capsys.readouterr().out
    assert not (tmp_path / "w").exists()
    runner.Results(toy, "cpu", folder=tmp_path / "r").add(
        "untrained | seed 0", {"measured": {"parts": 0.0}, "seconds": 1.0}
    )
    assert command.main([*words.split(), "--processes", "1"]) == 0
    assert "toy: 3 of 4 runs, 0 min" in capsys.readouterr().out


def test_a_dry_run_plans_images_that_a_study_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Arm(data="made", source=lambda *_: {"x": np.zeros((48, 16, 16, 3), np.uint8)})
    study = replace(make_study(seeds=(0,)), arms={"made": made}, findings=())
    monkeypatch.setattr(registry, "studies", lambda: {"toy": study})
    words = f"run toy --dry-run --data {tmp_path} --results {tmp_path} --processes 1"
    assert command.main(words.split()) == 0
    assert "toy: 1 of 1 runs, 0 min" in capsys.readouterr().out


@pytest.mark.parametrize(
    "study", [s for s in registry.studies().values() if not s.commit], ids=lambda s: s.id
)
def test_a_study_is_complete(study: Study) -> None:
    """Every scale is there or has its reason, and tiny is one size for all."""
    assert study.scales.keys() | study.missing.keys() >= {"tiny", "cpu"}
    assert study.measure or study.together
    if "tiny" in study.scales:
        assert study.scales["tiny"].seeds == TINY.seeds
    for arm in study.arms.values():
        for scale in study.scales.values():
            if arm.settings is not None:
                assert trained.run_settings(arm, scale, seed=0)["epochs"] >= 1
        if arm.settings is not None:
            settings = trained.run_settings(arm, study.scales["cpu"], seed=0)
            make_recipe(settings.pop("recipe", "default"), **settings)


def test_the_data_of_every_arm_can_be_opened(packs: Packs) -> None:
    studies = [study for study in registry.studies().values() if "tiny" in study.scales]
    arms = [study.arms[name] for study in studies for name in study.arms_at("tiny")]
    for data in {arm.data for arm in arms if arm.source is None}:
        for split in ("train", "test"):
            assert len(open_dataset(packs.spec(data, split), max_examples=10)) == 10


def kind(arm: Arm) -> str:
    """What decides which code trains and opens an encoder."""
    plain = arm.settings is None or arm.settings.get("method") in trained.WITHOUT_PROJECTOR
    settings = None if arm.settings is None else {"projector": not plain}
    return repr(replace(arm, data="", settings=settings, epochs=1, images=None))


NAMED = {
    "SD-T5-CIFAR-10": ("s-diet", "simclr", "untrained"),
    "FL-F4": ("crop", "untrained"),
}
"""The arms of a study that are measured together, or that are enough of its large network."""


def smallest() -> dict[str, Study]:
    """The study of the fewest arms for each way to measure, with an arm of each kind.

    Others differ from it in data, settings and criteria, which are checked without a training.
    """
    groups: dict[tuple[object, ...], list[Study]] = {}
    for study in registry.studies().values():
        if "tiny" in study.scales:
            sounds = any(arm.data.startswith("fsdd") for arm in study.arms.values())
            ways = study.measure, study.validate, study.together, study.figure, sounds
            groups.setdefault(ways, []).append(study)
    found = {}
    for group in groups.values():
        study = min(group, key=lambda study: len(study.arms_at("tiny")))
        if study.together is None or study.id in NAMED:
            kinds = {kind(study.arms[name]): name for name in study.arms_at("tiny")}
            names = NAMED.get(study.id) or tuple(kinds.values())
            scale = replace(study.scales["tiny"], arms=len(names))
            arms = {name: study.arms[name] for name in (*names, *study.arms)}
            study = replace(study, arms=arms, scales={**study.scales, "tiny": scale})
        found[study.id] = study
    return found


SMALLEST = smallest()


@pytest.mark.parametrize("name", SMALLEST)
def test_studies_run_at_their_smallest(
    name: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps, images and draws that set only how exact a number is are few."""
    monkeypatch.setattr(registry, "studies", lambda: SMALLEST)
    few_steps = partial(seen.activation_maximization, steps=4)
    monkeypatch.setattr(seen, "activation_maximization", few_steps)
    short_probe = partial(feature_dropout.score_sgd, epochs=2)
    monkeypatch.setattr(feature_dropout, "score_sgd", short_probe)
    short = {name: how._replace(steps=8) for name, how in calibration.NETWORKS.items()}
    monkeypatch.setattr(calibration, "NETWORKS", short)
    for images in ("TRAIN", "TEST", "REFERENCE"):
        monkeypatch.setattr(calibration, images, 60)
    work = tmp_path_factory.getbasetemp() / "studies"
    words = f"run {name} --scale tiny --processes 1 --work {work} --results {work / 'results'}"
    assert command.main(words.split()) == 0
    kept = runner.read(work / "results" / f"{name}.tiny.json")
    assert kept["runs"]
    assert all(run["measured"] for run in kept["runs"].values())
