"""Runs killed at any instant end as the run that was not."""

import re
import subprocess
import sys
from pathlib import Path

TORTURE = Path(__file__).parents[2] / "torture.py"


def test_kills_and_identical_endings() -> None:
    """In a process of its own: children are forked from it, and tests have threads."""
    command = [sys.executable, TORTURE, "--kills", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert second == "3 kills, 3 identical endings, 0 lost rows"
    found = re.fullmatch(
        r"at weak points: (\d+) kills, (\d+) identical endings, 0 lost rows", first
    )
    assert found is not None
    assert found[1] == found[2]
    assert int(found[1]) >= 10
