"""Nothing of the user's is lost to an output, and no work to an output that cannot be written."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import pytest

import made_audit
from commands import Command
from runs import images, small
from widefield.audits import audit as audit_file
from widefield.audits import bounds
from widefield.core.files import check_writable, checked_output, write_atomically
from widefield.encoders import build_encoder, save_encoder
from widefield.encoders.names import check_encoder_name
from widefield.inference.open_encoder import load, open_encoder
from widefield.probes.outcome import Outcome
from widefield.workflows.export import export
from widefield.workflows.pretrain import pretrain


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(build_encoder("resnet-tiny", seed=0), folder)
    return folder


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_files_are_open_to_whom_the_umask_says(tmp_path: Path, umask: int) -> None:
    """The library that writes safetensors makes its files private."""
    save_encoder(build_encoder("resnet-tiny", seed=0), tmp_path)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == dict.fromkeys(modes, 0o666 & ~umask)
    assert "encoder.safetensors" in modes


def test_a_neighboring_file_is_not_overwritten(encoder: Path, tmp_path: Path) -> None:
    out, beside = tmp_path / "mine.safetensors", tmp_path / "mine.json"
    beside.write_text('{"mine": 1}')
    for overwrite, words in (
        (False, "mine.json is already there"),
        (True, "does not belong to an encoder"),
    ):
        with pytest.raises(ValueError, match=words):
            export(encoder, out, overwrite=overwrite)
    assert beside.read_text() == '{"mine": 1}'
    assert not out.exists()
    beside.unlink()
    export(encoder, out)
    with pytest.raises(ValueError, match="already there"):
        export(encoder, out)
    export(encoder, out, overwrite=True)
    assert json.loads(beside.read_text())["name"] == "resnet-tiny"


@pytest.mark.parametrize("beside", ["readout.safetensors", "projector.safetensors"])
def test_an_encoder_whose_readout_would_stay_is_not_replaced(
    encoder: Path, tmp_path: Path, beside: str
) -> None:
    """Wide or projected features would be of two encoders."""
    (tmp_path / beside).touch()
    for name in ("encoder.safetensors", "model.safetensors"):
        with pytest.raises(ValueError, match="would not fit another encoder: choose another name"):
            export(encoder, tmp_path / name, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == [beside]


@pytest.mark.parametrize(
    "name", [".mine.onnx.draft", ".mine.safetensors.draft", ".mine.json.draft"]
)
def test_nothing_that_looks_like_a_draft_is_touched(
    encoder: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine.txt").write_text("mine")
    export(encoder, tmp_path / "mine.safetensors")
    assert (tmp_path / name / "mine.txt").read_text() == "mine"


def test_a_write_that_fails_leaves_no_folder_behind(tmp_path: Path) -> None:
    def fail(draft: Path) -> None:
        draft.write_text("half")
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_atomically(tmp_path / "a" / "b" / "file", fail)
    assert not list(tmp_path.iterdir())


def test_a_name_as_long_as_the_system_takes(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 250 + ".txt")
    write_atomically(path, lambda draft: draft.write_text("whole"))
    assert path.read_text() == "whole"


@pytest.mark.parametrize("name", ["folder.svg", "dangling.svg", "taken.svg", "pipe.svg", "a.pdf"])
def test_an_output_is_checked_before_the_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "dangling.svg").symlink_to("gone")
    (tmp_path / "taken.svg").write_text("mine")
    os.mkfifo(tmp_path / "pipe.svg")
    with pytest.raises(ValueError, match=r"choose another|suffix"):
        checked_output(tmp_path / name, (".svg",), overwrite=False)
    replaceable = name in ("dangling.svg", "taken.svg")
    if replaceable:
        checked_output(tmp_path / name, (".svg",), overwrite=True)
    else:
        with pytest.raises(ValueError, match=r"choose another|suffix"):
            checked_output(tmp_path / name, (".svg",), overwrite=True)


def test_runs_are_found_in_the_home_folder_and_no_output_is_in_one_called_tilde(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(in_tmp / "home"))
    pretrain(images(), out="~/run", **small("diet"))
    assert os.listdir() == ["home"]
    check_encoder_name("~/run")
    with pytest.raises(ValueError, match="no encoder '': give a run's folder"):
        open_encoder("")  # such as a variable that is not set, and not the working folder
    load("~/run")
    assert open_encoder("~/run").run is not None
    line = f"~/a.csv begins with ~, which a shell expands: give {in_tmp}/home/a.csv"
    with pytest.raises(ValueError, match=line):
        checked_output("~/a.csv", (".csv",), overwrite=False)


@pytest.mark.parametrize("place", ["/proc/nothing", "taken.txt/below"])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str) -> None:
    (tmp_path / "taken.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"cannot write in .*; choose another place"):
        check_writable(tmp_path / place)
    with pytest.raises(ValueError, match=r"cannot write in .*; choose another place"):
        pretrain(tmp_path, out=tmp_path / place)  # before data are looked for in the folder
    check_writable(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()


def test_a_lab_asks_before_it_replaces_a_figure(
    in_tmp: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from widefield_labs.lab import Lab

    (in_tmp / "x.svg").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(Lab, "run", lambda *args, **given: pytest.fail("worked before it asked"))
        line = command.refused("lab", "multistep", "--scale", "tiny", "--out", "x.svg")
    assert "x.svg is already there: choose another name, or pass --overwrite" in line
    assert (in_tmp / "x.svg").read_text() == "mine"
    words = ("lab", "multistep", "--scale", "tiny", "--out", "x.svg", "--overwrite")
    assert "holds" in command.text(*words)
    assert (in_tmp / "x.svg").read_text().startswith("<?xml")


def test_an_audit_whose_page_cannot_be_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **given: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(audit_file, "write_page", fail)
    audit = audit_file._with_page(made_audit.whole(), tmp_path / "page.html", False)
    assert audit.report is None
    assert "the report was not written: [Errno 28] No space left on device" in audit.notes


def test_a_cache_that_is_full_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "full").write_text("no folder")
    said: list[str] = []
    result = Outcome(values=np.ones(3, dtype=bool), knn=0.5)
    bounds._save(tmp_path / "full" / "x.npz", result, said.append)
    assert len(said) == 1
    assert "not cached" in said[0]
    bounds._save(tmp_path / "free" / "x.npz", result, said.append)
    assert len(said) == 1
    assert bounds._load(tmp_path / "free" / "x.npz") is not None


def test_a_damaged_entry_of_a_cache_is_measured_again(tmp_path: Path) -> None:
    """Read by numpy alone, the old behavior, some of these end in other errors: the control."""
    file, result = tmp_path / "x.npz", Outcome(values=np.arange(40) % 3 == 0, knn=0.5)
    bounds._save(file, result, pytest.fail)
    whole, strange = file.read_bytes(), set()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        file.write_bytes(damaged)
        found = bounds._load(file)
        assert found is None or (found.knn == 0.5 and (found.values == result.values).all())
        try:
            with file.open("rb") as opened, np.load(opened) as arrays:
                float(arrays["knn"])
        except Exception as error:
            strange.add(type(error))
    assert not strange <= {OSError, ValueError, KeyError, EOFError, BadZipFile}


def test_a_cache_that_cannot_be_written_is_refused_before_the_work(
    in_tmp: Path, command: Command
) -> None:
    (in_tmp / "file").write_text("mine")
    line = command.refused("audit", "pixels", "photos", "--cache", "file/below")
    assert "cannot write in file/below" in line
