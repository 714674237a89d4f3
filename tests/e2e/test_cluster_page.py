"""The SLURM script of docs/cluster.md, on one machine with a stand-in for `srun`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ranks import free_port
from runs import images, last_checkpoint

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"

SBATCH_OPTIONS = {
    *("job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task"),
    *("time", "signal", "output"),
}
"""Those of `man sbatch` that the script uses."""

SRUN = """#!/bin/bash
printf '%s\\n' "$@" > "$CALLED"
shift  # its own option
if [ -z "${ONLY_PRINT:-}" ]; then exec "$@"; fi
"""

TINY = "--method simclr --epochs 1 --batch-size 16 --encoder resnet-tiny --image-size 16"
TINY += " --projector-width 8 --projector-dim 8 --device cpu"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (text,) = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "pretrain.slurm"
    file.write_text(text)
    return file


def environment(folder: Path, **others: str) -> dict[str, str]:
    """A job of one node with two devices, whose commands stand in for those of SLURM."""
    commands = folder / "bin"
    commands.mkdir(exist_ok=True)
    for name, text in {"srun": SRUN, "scontrol": "#!/bin/bash\necho localhost\n"}.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    path = f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = {"SLURM_JOB_ID": str(free_port()), "SLURM_JOB_NODELIST": "localhost"}
    job |= {"SLURM_JOB_NUM_NODES": "1", "SLURM_GPUS_ON_NODE": "2"}
    return {**os.environ, **job, "PATH": path, "CALLED": str(folder / "called"), **others}


def submit(script: Path, *words: str, **others: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", script, *words],
        env=environment(script.parent, **others),
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_script_is_sound_and_its_options_are_those_of_sbatch(script: Path) -> None:
    text = script.read_text()
    assert text.startswith("#!/bin/bash\n#SBATCH ")
    subprocess.run(["bash", "-n", script], check=True)
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, re.MULTILINE))
    assert len(options) == text.count("#SBATCH")
    assert options.keys() == SBATCH_OPTIONS
    assert options["ntasks-per-node"] == "1"  # torchrun starts the processes of a node
    assert re.fullmatch(r"TERM@\d+", options["signal"])
    broken = script.with_name("broken")
    broken.write_text(text.replace("fi\n", "\n"))
    assert subprocess.run(["bash", "-n", broken], capture_output=True).returncode


def test_two_processes_train_and_a_second_job_resumes(script: Path) -> None:
    np.savez(script.with_name("images.npz"), **images())
    data, run = (str(script.with_name(name)) for name in ("images.npz", "run"))
    done = submit(script, data, run, *TINY.split())
    assert done.returncode == 0, done.stderr
    assert last_checkpoint(Path(run))["world"] == 2
    submit(script, data, run, *TINY.split(), ONLY_PRINT="1")
    called = script.with_name("called").read_text().splitlines()
    assert called[-5:] == ["pretrain", data, "--out", run, "--resume"]
    missing = submit(script, data)
    assert missing.returncode != 0
    assert "usage: sbatch pretrain.slurm DATA RUN" in missing.stderr
