"""A command whose streams, folder or variables are not as it expects them."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runs import images
from widefield import cli

WIDEFIELD = f"{sys.executable} -m widefield"


def shell(line: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, shell=True, cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("line", "code", "err"),
    [
        ("{} lab >&-", 0, ""),
        ("{} lab 2>&- | head -1", 0, ""),
        ("{} lab <&- | head -1", 0, ""),
        ("{} lab >/dev/full", 2, "widefield: cannot read or write: No space left on device\n"),
        ("{} labb 2>&-", 2, ""),
        ("{} labb 2>/dev/full", 2, ""),
        ("mkdir gone && cd gone && rmdir ../gone && {} lab >/dev/null", 0, ""),
    ],
)
def test_streams_and_places(tmp_path: Path, line: str, code: int, err: str) -> None:
    done = shell(line.format(WIDEFIELD), tmp_path)
    assert (done.returncode, done.stderr) == (code, err)


def test_characters_that_the_output_has_no_room_for(tmp_path: Path) -> None:
    done = shell(f"{WIDEFIELD} probe Bücher photos", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr.startswith(r"widefield: no encoder 'B\xfccher'")
    assert len(done.stderr.splitlines()) == 1


TINY = "--max-examples 16 --batch-size 8 --image-size 16 --epochs 1 --encoder resnet-tiny"
TINY += " --projector-width 8 --projector-dim 8"


@pytest.mark.parametrize("mended", [True, False])
def test_a_finished_run_whose_terminal_takes_ascii_alone(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch, mended: bool
) -> None:
    """Unmended, the old behavior, it ends in an error after the work: the control."""
    np.savez("images.npz", **images())
    streams = {name: io.TextIOWrapper(io.BytesIO(), "ascii") for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    if not mended:
        monkeypatch.setattr(cli, "fix_streams", lambda: None)
    monkeypatch.setattr("sys.argv", f"widefield pretrain images.npz --out rün {TINY}".split())
    with pytest.raises((SystemExit, UnicodeEncodeError)) as ended:
        cli.main()
    assert (getattr(ended.value, "code", 1) == 0) == mended
    if mended:
        stream = streams["stdout"]
        stream.flush()
        assert rb"r\xfcn" in stream.buffer.getvalue()  # type: ignore[attr-defined]
        assert (in_tmp / "rün" / "encoder.safetensors").exists()


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "abc"},
        {"WORLD_SIZE": "0"},
        {"RANK": "3"},
        {"LOCAL_WORLD_SIZE": "0"},
        {"LOCAL_RANK": "1"},
        {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"},
    ],
    ids=str,
)
def test_variables_that_torchrun_did_not_write(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from widefield.train.distributed import DistributedContext

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"unset (it|them), or start by torchrun"):
        DistributedContext(torch.device("cpu"), "32-true")
