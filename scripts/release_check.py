"""Builds the wheel and the source distribution, and tries the wheel in new environments.

    python scripts/release_check.py [--python PYTHON ...] [--json FILE]

Each environment is a new one in a temporary folder: for each Python, the tested versions of
constraints.txt, and for the first one also the lowest that pyproject.toml allows. Outside the
checkout, README's commands run on a folder of photographs, and then the tests of the public API.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import torch

from widefield.core.hardware import machine

ROOT = Path(__file__).parents[1]

TESTS = (
    "tests/conftest.py",
    "tests/commands.py",
    "tests/unit/test_reference.py",
    "tests/unit/workflows/test_embedder.py",
    "conftest.py",
    "scripts/api.py",
    "docs/api.txt",
)
"""Files of the checkout that the tests of the public API need."""

MODULES = ("losses", "methods", "head", "metrics", "views", "workflows.embed")
"""Modules whose examples run in each environment."""

PHOTOS = """
from pathlib import Path
from PIL import Image
from widefield.data import open_dataset
photos = open_dataset("photos", max_examples=320)
names = [photos.classes["class"][k] for k in photos.labels["class"]]
rows = ["path,label"]
for i, (image, name) in enumerate(zip(photos.images, names)):
    for folder in ("my-images", "labeled"):
        Path(folder, name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(Path(folder, name, f"{i:03d}.png"))
    rows += [f"{name}/{i:03d}.png,{name}"] if i % 2 == 0 else []
Path("labels.csv").write_text("\\n".join(rows))
"""

SMALLER = {"pretrain": ["--epochs", "2"], "audit": ["--max-examples", "64"]}
"""Options that make a command of the README faster."""

NOT_HERE = ("--download", "--feature digits")
"""README's commands with a download, and with a feature that the folder does not have."""


def run(words: list[str], folder: Path, **variables: str) -> str:
    """Run a command that succeeds, and return its output."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | variables
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(words, cwd=folder, env=env, check=False, **pipes)
    if done.returncode:
        raise SystemExit(f"failed: {shlex.join(words)}\n{done.stdout[-4000:]}")
    return done.stdout


def built(folder: Path) -> Path:
    """Build both distributions into `folder`, and return the wheel."""
    run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("widefield/py.typed", "widefield/report/base.html", "widefield_labs/__init__.py"):
        assert name in names, f"{name} is not in the wheel"
    assert not [name for name in names if name.startswith(("tests", "scripts", "benchmarks"))]
    with tarfile.open(source) as archive:
        inner = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/widefield/py.typed"} <= inner
    return wheel


def lowest() -> str:
    """Return the lower bounds of the direct dependencies as constraints."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["audio"]]
    return "".join(f"{bound.replace('>=', '==')}\n" for bound in needed)


def readme_commands() -> list[list[str]]:
    """Return the commands of the README that need nothing but a folder of images."""
    text = (ROOT / "README.md").read_text()
    lines = [line.partition("#")[0] for line in re.findall(r"^widefield .*$", text, re.MULTILINE)]
    lines = [line for line in lines if not any(word in line for word in NOT_HERE)]
    order = {"plan": 0, "pretrain": 1}
    words = sorted((shlex.split(line) for line in lines), key=lambda w: order.get(w[1], 2))
    return [[*line, *SMALLER.get(line[1], [])] for line in words]


def tried(python: str, wheel: Path, constraints: Path, folder: Path) -> dict[str, object]:
    """Install the wheel into a new environment, run everything there, and return the numbers."""
    folder.mkdir()
    run([python, "-m", "venv", "env"], folder)
    pip = [str(folder / "env" / "bin" / "pip"), "install", "-q", "-c", str(constraints)]
    begin = time.monotonic()
    run([*pip, str(wheel)], folder)
    found: dict[str, object] = {"install_seconds": round(time.monotonic() - begin)}
    found |= size_of(folder)
    run([*pip, f"{wheel}[audio]", "pytest", "hypothesis"], folder)
    env = {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PATH": f"{folder}/env/bin:{os.environ['PATH']}",
    }
    inside = str(folder / "env" / "bin" / "python")
    begin = time.monotonic()
    run([inside, "-c", PHOTOS], folder, **env)
    for words in readme_commands():
        run(words, folder, **env)
    readme = (ROOT / "README.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S))
    (folder / "python").mkdir()
    run([inside, "-c", code], folder / "python", **env)
    found["readme_seconds"] = round(time.monotonic() - begin)
    found["tests"] = api_tests(inside, folder, env)
    return found


def size_of(folder: Path) -> dict[str, object]:
    """Return number and size of the packages in the environment of a folder."""
    listed = run([str(folder / "env" / "bin" / "pip"), "list", "--format=json"], folder)
    packages = [p["name"] for p in json.loads(listed) if p["name"] not in ("pip", "setuptools")]
    files = {f.stat().st_ino: f.stat().st_size for f in (folder / "env").rglob("*") if f.is_file()}
    return {"packages": len(packages), "megabytes": round(sum(files.values()) / 1e6)}


def api_tests(python: str, folder: Path, env: dict[str, str]) -> str:
    """Run the tests of the public API outside the checkout, and return pytest's last line."""
    for name in TESTS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text((ROOT / name).read_text())
    config = "[tool.pytest.ini_options]\npythonpath = ['scripts', 'tests']\n"
    (folder / "pyproject.toml").write_text(config)
    where = run([python, "-c", "import widefield; print(widefield.__file__)"], folder, **env)
    assert str(folder) in where, f"the tests would run {where}"
    examples = [f"widefield.{module}" for module in MODULES]
    flags = ["-o", "doctest_optionflags=ELLIPSIS NORMALIZE_WHITESPACE"]
    words = [python, "-m", "pytest", "-q", "--doctest-modules", *flags]
    return run([*words, "tests", "--pyargs", *examples], folder, **env).strip().splitlines()[-1]


def main() -> None:
    """Build, and try in each environment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        wheel = built(place)
        bounds = place / "lowest.txt"
        bounds.write_text(lowest())
        tested = ROOT / "constraints.txt"
        kinds = [(python, "tested", tested) for python in given.python]
        kinds.insert(1, (given.python[0], "lowest", bounds))
        for i, (python, kind, constraints) in enumerate(kinds):
            version = run([python, "-V"], place).split()[1]
            numbers = tried(python, wheel, constraints, place / f"{i}")
            results[f"Python {version}, {kind} versions"] = numbers
            print(f"Python {version}, {kind} versions: {numbers}", flush=True)
    if given.json:
        found = {"machine": machine(torch.device("cpu")), "environments": results}
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
