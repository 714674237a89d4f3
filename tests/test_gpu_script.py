"""The script of the benchmarks for a GPU: what it calls, and what it leaves out."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_script(
    scale: str, out: Path, python: str | Path = sys.executable, **env: str
) -> "subprocess.CompletedProcess[str]":
    words = ["sh", "benchmarks/gpu.sh", scale, str(out), "photos", "photos:test"]
    env = {**os.environ, "PYTHON": str(python), **env}
    return subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)


def stand_in(folder: Path) -> Path:
    """Return a `python` that notes what it is called with, and fails to train SimCLR."""
    fake = folder / "python"
    fake.write_text(
        f'#!/bin/sh\necho "$@" >> {folder}/calls\necho "{{}}"\n'
        'case "$*" in *pretrain*simclr*) exit 2 ;; esac\n'
    )
    fake.chmod(0o755)
    return fake


def test_it_goes_on_and_names_what_is_not_finished(tmp_path: Path) -> None:
    python, out = stand_in(tmp_path), tmp_path / "out"
    done = run_script("gpu", out, python)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [line.split()[1] for line in calls[:5]] == [
        f"benchmarks.ratios.{name}" for name in ("step", "head", "catch_up", "views", "compiled")
    ]
    assert [line.split()[2] for line in calls[5:]] == ["plan", "pretrain", "probe"] * 3
    assert all("--device cuda" in line for line in calls[5:] if "probe" not in line)
    assert (done.returncode, done.stderr) == (1, "not finished: train_simclr\n")
    assert json.loads((out / "train_s-diet.json").read_text()) == {}
    run_script("gpu", out, python)  # what is there is not repeated
    again = (tmp_path / "calls").read_text().splitlines()[len(calls) :]
    assert [line.split()[2] for line in again] == ["pretrain"]


def test_its_limits_add_up_to_27_minutes(tmp_path: Path) -> None:
    """With `timeout` replaced, so that its seconds are seen."""
    stand_in(tmp_path)
    timeout = tmp_path / "timeout"
    timeout.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/seconds\n')
    timeout.chmod(0o755)
    run_script("gpu", tmp_path / "out", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert sum(map(int, (tmp_path / "seconds").read_text().split())) <= 27 * 60


def test_a_part_runs_at_scale_tiny_on_the_cpu(tmp_path: Path) -> None:
    done = run_script("tiny", tmp_path, PARTS="catch_up")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "catch_up.json").read_text())
    assert found["ratios"].keys() == {f"loop/merged@{missed}" for missed in (1, 10, 1000)}
    assert [path.name for path in tmp_path.iterdir()] == ["catch_up.json"]


def test_a_wrong_call_ends_in_one_line(tmp_path: Path) -> None:
    done = run_script("huge", tmp_path)
    assert (done.returncode, done.stderr) == (2, "error: huge is no scale: give gpu or tiny\n")
