"""A command whose streams, folder or variables are not as it expects them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "abc"},
        {"WORLD_SIZE": "0"},
        {"RANK": "3"},
        {"LOCAL_WORLD_SIZE": "0"},
        {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"},
    ],
    ids=str,
)
def test_variables_that_torchrun_did_not_write(
    tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from widefield.train.ranks import Ranks

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=r"unset (it|them), or start by torchrun"):
        Ranks(torch.device("cpu"), "32-true")
