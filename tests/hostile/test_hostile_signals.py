"""A command that is told to end at any instant: one line, a whole folder, and a way to go on."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forked import ForkedCommand
from runs import SMALL, images
from widefield.cli import errors
from widefield.cli.process import SignalExit
from widefield.workflows.pretrain import pretrain

SECONDS = 120
"""A command that has not ended by then hangs."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(file, **images())
    return file


def started(data: Path, run: Path) -> ForkedCommand:
    """Start a run, and return once the command has taken over its signals."""
    options = {k: v for k, v in SMALL.items() if k != "quiet"} | {"epochs": 8}
    words = [word for k, v in options.items() for word in (f"--{k.replace('_', '-')}", str(v))]
    process = ForkedCommand("pretrain", data, "--out", run, *words)
    status, bit = Path(f"/proc/{process.pid}/status"), 1 << (signal.SIGTERM - 1)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        facts = dict(line.split(":\t", 1) for line in status.read_text().splitlines())
        if int(facts["SigCgt"], 16) & bit:
            return process
        time.sleep(0.002)
    raise AssertionError("the command never began")


def ended(process: ForkedCommand) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode is not None
    return process.returncode, out, err


SIGNALS = (
    (signal.SIGINT,),
    (signal.SIGTERM,),
    (signal.SIGINT, signal.SIGTERM),
    (signal.SIGTERM, signal.SIGTERM),
    (signal.SIGTERM, signal.SIGINT, signal.SIGTERM, signal.SIGINT),
    (signal.SIGINT,) * 10,
)


def interrupted_at(instant: float, signs: tuple[signal.Signals, ...], data: Path, run: Path) -> str:
    """Send signals `instant` seconds after the command began; return how far it had come."""
    process = started(data, run)
    time.sleep(instant)
    for sign in signs:
        process.send_signal(sign)
    code, out, err = ended(process)
    assert "Traceback" not in err, err
    assert "Exception ignored" not in err, err
    if code == 0:
        return "finished"
    # Python lets the first of signals that come together be either.
    assert code in {128 + sign for sign in signs}, (code, err)
    lines = [line for line in err.splitlines() if line.startswith("widefield: ")]
    assert lines == [f"widefield: {'interrupted' if code == 130 else 'terminated'}"]
    assert out == ""
    if "stopped; " in err:
        assert f"stopped; resume with: widefield pretrain {data} --out {run} --resume\n" in err
        assert (run / "checkpoints" / "last.pt").exists()
        return "trained"
    assert not run.exists()  # nothing had begun
    return "before"


COUNT = int(os.environ.get("SIGNALS", 4))


def test_at_random_instants(data: Path, tmp_path: Path) -> None:
    rng = random.Random(0)
    process = started(data, tmp_path / "whole")
    began = time.monotonic()
    code, _, err = ended(process)
    assert code == 0, err
    length = time.monotonic() - began
    stages = set()
    for trial in range(COUNT):
        run = tmp_path / str(trial)
        # One at once, the others at every stage.
        instant = (trial + rng.random()) / COUNT * 1.05 * length if trial else 0
        stages.add(interrupted_at(instant, SIGNALS[trial % len(SIGNALS)], data, run))
        if run.exists():
            assert pretrain(data, out=run, resume=True, quiet=True).finished
    assert stages >= {"before", "trained"}


def signaled_late() -> None:
    """Let the command get a signal while the line of its error is made."""

    def late(error: BaseException, line_of: Any = errors.line_of) -> str | None:
        os.kill(os.getpid(), signal.SIGTERM)
        result: str | None = line_of(error)
        return result

    errors.line_of = late


def signaled_late_and_listening() -> None:
    signaled_late()
    SignalExit.ignore_signals = lambda self: None  # type: ignore[method-assign]


@pytest.mark.parametrize("first", [signaled_late, signaled_late_and_listening])
def test_a_signal_does_not_cut_off_the_line_of_an_error(
    first: Callable[[], None], tmp_path: Path
) -> None:
    """Had the command not stopped listening before, it would end without a word: the control."""
    command = ForkedCommand("probe", tmp_path / "nothing", "photos", first=first)
    _, err = command.communicate(timeout=SECONDS)
    lines = [line for line in err.splitlines() if line.startswith("widefield: ")]
    if first is signaled_late_and_listening:
        assert (command.returncode, lines) == (143, [])
    else:
        assert command.returncode == 2
        assert len(lines) == 1
        assert "nothing" in lines[0]
