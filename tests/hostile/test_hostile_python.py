"""The Python calls: what the system refuses is a `ValueError` of one line, as at the command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import widefield
from widefield.core.errors import input_errors

LONG = "a" * 5000
X = {"x": np.zeros((4, 8, 8, 3), np.uint8), "y": np.arange(4) % 2}

CALLS: dict[str, Callable[[Path], Any]] = {
    "pretrain": lambda folder: widefield.pretrain(X, out=folder / "file" / "run", quiet=True),
    "pretrain, a name": lambda folder: widefield.pretrain(X, out=LONG, quiet=True),
    "pretrain, data": lambda folder: widefield.pretrain(LONG, out=folder / "run", quiet=True),
    "probe": lambda folder: widefield.probe(LONG, X, train_data=X, quiet=True),
    "probe, data": lambda folder: widefield.probe("pixels", LONG, train_data=X, quiet=True),
    "embed": lambda folder: widefield.embed(LONG, X, quiet=True),
    "embed, out": lambda folder: widefield.embed("pixels", X, out=f"{LONG}.npz", quiet=True),
    "classify": lambda folder: widefield.classify("pixels", X, labels=LONG, quiet=True),
    "explore": lambda folder: widefield.explore("pixels", LONG, quiet=True),
    "explore, out": lambda folder: widefield.explore("pixels", X, out=f"{LONG}.html", quiet=True),
    "search": lambda folder: widefield.search(LONG, X, image=folder / "file", quiet=True),
    "search, image": lambda folder: widefield.search("pixels", X, image=LONG, quiet=True),
    "search, out": lambda folder: widefield.search(
        "pixels", X, image=folder / "file", out=f"{LONG}.html", quiet=True
    ),
    "recover": lambda folder: widefield.recover(LONG, out=folder / "new", quiet=True),
    "export": lambda folder: widefield.export(LONG, folder / "x.safetensors"),
    "export, out": lambda folder: widefield.export("pixels", folder / "file" / "x.safetensors"),
    "audit": lambda folder: widefield.audit(LONG, X, quiet=True),
    "audit, cache": lambda folder: widefield.audit("pixels", X, cache=LONG, quiet=True),
    "load": lambda folder: widefield.load(LONG),
    "plan": lambda folder: widefield.plan(LONG),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_the_system_refuses_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r".") as refused:
        CALLS[name](tmp_path)
    line = str(refused.value)
    assert line.isprintable()
    assert len(line) < 12_000 if LONG in line else len(line) <= 400
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_system_refuses_these_by_other_errors(tmp_path: Path) -> None:
    """The control: what the calls would raise without their boundary."""
    with pytest.raises(OSError, match="too long"):
        Path(LONG).exists()
    inside: Any = widefield.load
    with pytest.raises(OSError, match="too long"):
        inside.__wrapped__(LONG)


def test_what_went_wrong_stays_with_the_line() -> None:
    with pytest.raises(ValueError, match="File name too long") as refused:
        input_errors(open)(LONG)
    assert isinstance(refused.value.__cause__, OSError)


def test_a_reader_that_went_away_is_no_input() -> None:
    @input_errors
    def broken() -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        broken()
