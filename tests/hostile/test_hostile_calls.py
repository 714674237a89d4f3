"""Calls and files that a grammar makes: no traceback, nothing that hangs, nothing lost."""

import subprocess
import sys
from pathlib import Path

import calls

CALLS = Path(calls.__file__)
CASES = 120


def test_no_call_breaks_a_promise() -> None:
    """In a process of its own: what a command does to its process stays there."""
    command = [sys.executable, "-W", "ignore", CALLS, "--cases", str(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.splitlines()[-1].startswith(f"{CASES} calls, 0 break a promise")


def outcome(code: int = 2, out: str = "", err: str = "widefield: no\n") -> calls.Outcome:
    return calls.Outcome(code, out, err)


def test_the_referee_sees_what_breaks_a_promise(tmp_path: Path) -> None:
    """The control: each promise, broken by hand."""
    before = calls.content(tmp_path)
    assert calls.problem_of(outcome(), before, before) is None
    assert calls.problem_of(outcome(0), before, {"written": ()}) is None
    for broken in (
        outcome(1),
        outcome(out="half a result"),
        outcome(err=""),
        outcome(err="widefield: a\nwidefield: b\n"),
        outcome(err="widefield: a\nmore\n"),
        outcome(err="widefield: \x1b[2J\n"),
        outcome(err=f"widefield: {'a' * 500}\n"),
    ):
        assert calls.problem_of(broken, before, before) is not None
    (tmp_path / "new").write_text("left behind")
    assert calls.problem_of(outcome(), before, calls.content(tmp_path)) is not None
    diverged = outcome(err="widefield: the weights are NaN or infinite after step 2 (bias)\n")
    assert calls.problem_of(diverged, before, calls.content(tmp_path)) is None
    (tmp_path / "mine").write_text("changed")
    assert calls.problem_of(diverged, before, calls.content(tmp_path)) is not None
