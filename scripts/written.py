"""Write what follows from the code of an addition: curve, measurements, pictures and tables.

make written NAME=mmcr
python scripts/written.py mmcr
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from view_pictures import COMMAND, image_views
from widefield.data.planted import PLANTS
from widefield.data.readers.paths import READERS
from widefield.methods import METHODS
from widefield.metrics import DIAGNOSTICS
from widefield.views import VIEWS
from widefield_labs import claims

ROOT = Path(__file__).parents[1]
STEPS = "benchmarks/results/bench_step/resnet-tiny"
BENCH = f"-m benchmarks.ratios.step --encoder resnet-tiny --into {STEPS} --methods"
TABLES = "scripts/tables.py"


def commands(name: str) -> list[str]:
    """Return the arguments of Python that write what the addition `name` needs, in their order.

    Raises:
        ValueError: no registry has the name.

    Example:
        >>> commands("digits")
        ['scripts/tables.py']
    """
    registries = (METHODS, VIEWS, PLANTS, DIAGNOSTICS, READERS, claims())
    module = name.replace("-", "_")
    if not any({name, module, f".{module}"} & entries.keys() for entries in registries):
        raise ValueError(f"NAME={name!r} is in no registry: `make new KIND=... NAME={name}`")
    found = []
    if name in METHODS:
        # The list of public names reads the file of losses that the first run writes.
        found += [f"tests/golden/test_curves.py {name}", f"{BENCH} {name}", TABLES]
    if name in image_views():
        found.append(COMMAND.removeprefix("python "))
    if name in claims():
        found.append(f"-m widefield lab {name} --out docs/labs/{name}.svg --overwrite")
    return [*found, TABLES]


def tests(name: str) -> str:
    """Return the tests that apply to the addition `name`, as arguments of pytest."""
    own = sorted((ROOT / "tests").rglob(f"test_{name.replace('-', '_')}.py"))
    general = ["tests/test_packages.py"]
    if name in METHODS:
        general += ["tests/conformance", "tests/golden"]
    if name in VIEWS:
        general += ["tests/conformance/test_views.py", "tests/unit/views"]
    if name in PLANTS:
        general += ["tests/unit/data/test_plants.py"]
    return " ".join([*(str(path.relative_to(ROOT)) for path in own), *general])


def contents() -> dict[Path, bytes]:
    """Return a digest of every file that such a command may write."""
    folders = ("src/widefield", "docs", "benchmarks", "tests/golden")
    files = [p for folder in folders for p in (ROOT / folder).rglob("*") if p.is_file()]
    files = [p for p in (*files, ROOT / "README.md") if "__pycache__" not in p.parts]
    return {path: hashlib.sha256(path.read_bytes()).digest() for path in files}


def main() -> int:
    """Run the commands for one name, and print which files changed."""
    try:
        todo = commands(*sys.argv[1:2] or [""])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    before, failed = contents(), []
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    for arguments in todo:
        print(f"python {arguments}", flush=True)
        run = subprocess.run(
            [sys.executable, *arguments.split()], cwd=ROOT, env=environment, check=False
        )
        failed += [arguments] if run.returncode else []
    changed = sorted(path for path, digest in contents().items() if before.get(path) != digest)
    print("".join(f"wrote {path.relative_to(ROOT)}\n" for path in changed), end="")
    print(
        "".join(f"failed, and to be repeated: python {arguments}\n" for arguments in failed), end=""
    )
    print(f"now: pytest {tests(sys.argv[1])}")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
