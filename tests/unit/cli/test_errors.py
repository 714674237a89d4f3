"""Which errors become a line, and which show where they arose."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from widefield.cli.errors import line_of

TOO_LARGE = 2**60


def error_of(act: object) -> Exception:
    assert callable(act)
    with pytest.raises(Exception) as raised:  # noqa: PT011
        act()
    return raised.value


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: Path("/proc/nobody/x").write_text(""), "/proc/nobody/x: No such file"),
        (lambda: os.listdir(b"/nowhere\xff"), r"/nowhere\udcff: No such file"),
        (lambda: "é".encode("ascii"), "can't encode character"),
        (lambda: torch.empty(TOO_LARGE), "not enough memory"),
        (lambda: np.empty(TOO_LARGE // 2**10), "not enough memory"),
        (lambda: torch.zeros(2, 3) @ torch.zeros(2, 3), "--debug shows the traceback"),
        (lambda: torch.Generator().manual_seed(2**80), "too large|Overflow"),
        (lambda: torch.nn.Conv2d(3, 3, 7)(torch.zeros(1, 3, 4, 4)), "Kernel size"),
    ],
)
def test_what_the_user_or_the_machine_caused(act: object, words: str) -> None:
    line = line_of(error_of(act))
    assert line is not None
    assert any(word in line for word in words.split("|")), line
    assert "\n" not in line


@pytest.mark.parametrize(
    "error",
    [AssertionError(), AttributeError("x"), TypeError("x"), KeyError("x"), NotImplementedError()],
)
def test_bugs_of_ours_are_no_lines(error: Exception) -> None:
    assert line_of(error) is None


def test_a_working_folder_that_is_gone(in_tmp: Path) -> None:
    (in_tmp / "gone").mkdir()
    os.chdir("gone")
    (in_tmp / "gone").rmdir()
    line = line_of(error_of(Path.cwd))
    assert line is not None
    assert "the working folder is gone" in line
