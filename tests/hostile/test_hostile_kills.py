"""Commands that are killed as they write: what they were to write is absent or whole."""

import subprocess
import sys
from pathlib import Path

import kills


def test_every_command_that_writes_is_killed_and_finds_no_room() -> None:
    """In a process of its own: children are forked from it, and tests have threads."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        kills.__file__,
        "--most",
        "1",
        "--ends",
        "killed",
        "full",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    last = done.stdout.splitlines()[-1]
    assert last.startswith(f"{len(kills.COMMANDS)} commands, ")
    assert last.endswith(" kills, 0 break a promise")
    assert int(last.split()[2]) == 2 * (len(kills.COMMANDS) - 1)  # probe writes nothing


def test_the_referee_sees_a_torn_file_and_a_changed_neighbor(tmp_path: Path) -> None:
    """The control: what a command would leave that wrote in place."""
    command = kills.Killed("embed run data.npz --out e.npz", ("e.npz",))
    (tmp_path / "mine.txt").write_text("mine")
    before = dict(kills.content(tmp_path))
    whole = {"e.npz": b"whole"}
    (tmp_path / "e.npz").write_bytes(b"who")
    assert kills.problem_of(command, tmp_path, before, whole) == "e.npz is torn"
    (tmp_path / "e.npz").write_bytes(b"whole")
    (tmp_path / "e.tmp").write_text("half")
    assert kills.problem_of(command, tmp_path, before, whole) == "e.tmp is left behind"
    (tmp_path / "mine.txt").write_text("yours")
    assert kills.problem_of(command, tmp_path, before, whole) == "mine.txt is not as it was"
