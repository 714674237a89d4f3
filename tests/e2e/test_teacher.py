"""`--teacher`: what a student learns, what is kept on disk, kills and resumes, and bad input."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import widefield
from commands import Command
from made_weights import resnet_to_download
from runs import Killed, assert_same, die_at, images
from widefield.data import open_dataset
from widefield.encoders import build_encoder, save_encoder_file
from widefield.inference.features import FeatureExtractor
from widefield.inference.open_encoder import open_encoder
from widefield.methods.distill import teacher_rows
from widefield.workflows.embed import embed

RUN: dict[str, Any] = {
    "encoder": "resnet-tiny",
    "epochs": 2,
    "batch_size": 16,
    "checkpoint_every": 1,
    "quiet": True,
}
DATA = images(32)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, two teachers as files, and a run with one of them."""
    made = tmp_path_factory.mktemp("distill")
    np.savez(made / "data.npz", **DATA)  # type: ignore[arg-type]
    for seed, name in enumerate(("one", "two")):
        save_encoder_file(build_encoder("resnet-tiny", seed=seed), made / f"{name}.safetensors")
    widefield.pretrain(made / "data.npz", out=made / "run", teacher=made / "one.safetensors", **RUN)
    return made


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them as the working directory."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(run: str | Path) -> np.ndarray:
    found: np.ndarray = np.load(Path(run) / "teacher" / "rows.npy")
    return found


def test_rows_are_the_features_of_the_teachers(command: Command, folder: Path) -> None:
    words = ("--epochs", 1, "--batch-size", 16, "--encoder", "resnet-tiny")
    teachers = ("--teacher", "one.safetensors", "--teacher", "two.safetensors")
    command.text("pretrain", "data.npz", "--out", "both", *teachers, *words)
    recipe = (folder / "both" / "run.yaml").read_text()
    assert "name: distill" in recipe
    assert f"{folder}/one.safetensors" in recipe
    expected = teacher_rows(
        [
            torch.from_numpy(embed(f"{name}.safetensors", "data.npz").features)
            for name in ("one", "two")
        ]
    )
    assert rows("both").dtype == np.float16
    np.testing.assert_allclose(rows("both"), expected.numpy(), atol=1e-3)


def test_a_killed_run_ends_as_one_that_was_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that a teacher sees each example once, and is not needed to resume."""
    seen: list[int] = []
    features = FeatureExtractor.features

    def counted(teacher: FeatureExtractor, inputs: Any, **named: Any) -> Tensor:
        seen.append(len(inputs))
        return features(teacher, inputs, **named)

    monkeypatch.setattr(FeatureExtractor, "features", counted)
    with pytest.raises(Killed):
        widefield.pretrain(
            "data.npz", out="killed", on_step=die_at(3), teacher="one.safetensors", **RUN
        )
    (folder / "one.safetensors").unlink()
    widefield.pretrain("data.npz", out="killed", resume=True, quiet=True)
    assert seen == [32]
    assert_same(folder / "run", folder / "killed")


def test_a_kill_while_the_teacher_runs_leaves_nothing_wrong(folder: Path, made: Path) -> None:
    """Without rows, without their record, or with a file that is cut off, they are made again."""
    teacher = folder / "run" / "teacher"
    for left in ("nothing", "record", "half"):
        if left == "half":
            os.truncate(teacher / "rows.npy", 200)
            (teacher / "rows.json").write_text("{")
        elif left == "record":
            (teacher / "rows.npy").unlink()
        else:
            shutil.rmtree(teacher)
        widefield.pretrain("data.npz", out="run", resume=True, quiet=True)
        assert np.array_equal(rows("run"), rows(made / "run"))


def test_a_folder_is_free_again_after_a_kill_before_the_first_step(
    folder: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("widefield.workflows.pretrain.PretrainRun", killed)
        patched.setattr("widefield.train.run_dir.RunFolder.remove_incomplete", lambda _: None)
        with pytest.raises(Killed):
            widefield.pretrain("data.npz", out="new", teacher="one.safetensors", **RUN)
    assert {path.name for path in Path("new").iterdir()} - {".lock"} == {".teacher.draft"}
    widefield.pretrain("data.npz", out="new", teacher="two.safetensors", **{**RUN, "epochs": 1})
    assert not np.array_equal(rows("new"), rows(made / "run"))


def test_new_examples_get_rows(folder: Path) -> None:
    more = images(48)
    np.savez(folder / "data.npz", x=np.concatenate([DATA["x"], more["x"][:16]]))
    before = rows("run")
    widefield.pretrain("data.npz", out="run", resume=True, epochs=3, quiet=True)
    assert len(rows("run")) == 48
    np.testing.assert_allclose(rows("run")[: len(before)], before, atol=1e-3)


def test_a_teacher_that_was_replaced_is_not_mixed_with_the_one_before(folder: Path) -> None:
    """Rows are computed again when examples join, and they would be of two teachers."""
    widefield.pretrain("data.npz", out="own", teacher="one.safetensors", **{**RUN, "epochs": 1})
    before, one = rows("own"), Path("one.safetensors").read_bytes()
    np.savez("data.npz", x=np.concatenate([DATA["x"], images(48)["x"][:16]]))
    save_encoder_file(build_encoder("alexnet", seed=0), folder / "wide.safetensors")
    for other in ("two", "wide"):
        shutil.copy(f"{other}.safetensors", "one.safetensors")
        with pytest.raises(ValueError, match="have other features of its examples now: restore"):
            widefield.pretrain("data.npz", out="own", resume=True, epochs=2, quiet=True)
        assert np.array_equal(rows("own"), before)
    Path("one.safetensors").write_bytes(one)
    widefield.pretrain("data.npz", out="own", resume=True, epochs=2, quiet=True)
    assert len(rows("own")) == 48


def test_a_teacher_reads_the_examples_that_are_not_excluded(folder: Path) -> None:
    """Planted digits go by the position of an example, which those left out before it change."""
    gone, data = ("row 0", "row 5"), "data.npz+digits"
    some: dict[str, Any] = {**RUN, "epochs": 1, "max_examples": 20, "image_size": 32}
    out = dict.fromkeys(gone, "exclude")
    widefield.pretrain(data, out="part", exclude=out, teacher="one.safetensors", **some)
    used = open_dataset(data, max_examples=20, image_size=32, exclude=gone)
    features = open_encoder("one.safetensors").features(used.inputs, quiet=True, precision="32")
    np.testing.assert_allclose(rows("part"), teacher_rows([features]).numpy(), atol=1e-3)
    shutil.rmtree("part/teacher")
    widefield.pretrain(data, out="part", resume=True, quiet=True)
    np.testing.assert_allclose(rows("part"), teacher_rows([features]).numpy(), atol=1e-3)


def test_weights_of_a_teacher_are_fetched_only_with_download(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resnet_to_download(folder / "model.safetensors", monkeypatch)
    student = {"teacher": "timm:resnet10t", **RUN, "epochs": 1}
    with pytest.raises(ValueError, match=r"no weights of timm:resnet10t .* add download"):
        widefield.pretrain(DATA, out="student", **student)
    widefield.pretrain(DATA, out="student", download=True, **student)
    expected = embed("model.safetensors@resnet10t", DATA).features
    np.testing.assert_allclose(
        rows("student"), teacher_rows([torch.from_numpy(expected)]).numpy(), atol=1e-3
    )


def test_a_teacher_teaches(folder: Path) -> None:
    """Rows that the images determine are predicted; those of shuffled images, the control, less."""
    last = {}
    for name, order in (
        ("own", np.arange(32)),
        ("shuffled", np.random.default_rng(0).permutation(32)),
    ):
        out = folder / name
        with pytest.raises(Killed):
            widefield.pretrain(
                DATA, out=out, teacher="pixels", on_step=die_at(1), **{**RUN, "epochs": 6}
            )
        kept = rows(out)[order]
        np.save(out / "teacher" / "rows.npy", kept)
        widefield.pretrain(DATA, out=out, resume=True, quiet=True)
        table = (out / "metrics.csv").read_text().splitlines()
        column = table[0].split(",").index("loss")
        last[name] = float(table[-1].split(",")[column])
    assert last["own"] < last["shuffled"] - 0.05


def test_code_of_a_teacher_is_not_executed_by_a_resume(folder: Path) -> None:
    (folder / "net.py").write_text(
        "from widefield.encoders import build_encoder\n\n\ndef network():\n"
        "    return build_encoder('resnet-tiny', seed=0).backbone\n"
    )
    widefield.pretrain("data.npz", out="own", teacher="net.py:network", **RUN)
    shutil.rmtree(folder / "own" / "teacher")
    with pytest.raises(ValueError, match="executed only if you name it: give teacher again"):
        widefield.pretrain("data.npz", out="own", resume=True, quiet=True)
    widefield.pretrain("data.npz", out="own", resume=True, teacher="net.py:network", quiet=True)


def test_bad_teachers_are_refused_in_one_line(command: Command, folder: Path) -> None:
    def refused(*words: object) -> str:
        return command.refused("pretrain", "data.npz", "--out", "no", *words)

    line = refused("--method", "distill")
    assert "distill predicts the features of a teacher: give --teacher ENCODER" in line
    assert "no encoder 'nowhere'" in refused("--teacher", "nowhere")
    line = refused("--teacher", "timm:resnet18")
    assert "no weights of timm:resnet18 are on this machine: add --download to fetch them" in line
    gray = build_encoder("resnet-tiny", channels=1, seed=0)
    save_encoder_file(gray, folder / "gray.safetensors")
    line = refused("--teacher", "one.safetensors", "--teacher", "gray.safetensors")
    assert "number of channels differs: 3 for " in line
    sounds = build_encoder("conv1d", channels=1, image_size=(1, 8000), rate=8000, seed=0)
    save_encoder_file(sounds, folder / "sounds.safetensors")
    line = refused("--teacher", "sounds.safetensors")
    assert "images for data.npz: give a teacher of images" in line
    assert not (folder / "no").exists()
    line = refused("--teacher", "one.safetensors", "--method", "simclr")
    assert "teacher is not a setting of simclr" in line
