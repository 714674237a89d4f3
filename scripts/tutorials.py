"""Executes the notebooks of docs/tutorials/ and keeps their outputs.

    python scripts/tutorials.py [NAME ...] [--dry]
    python scripts/tutorials.py --check

Each runs in an empty folder, and may take five minutes on two cores. With `--dry` no file is
written. With `--check` nothing is executed: a notebook has the outputs of a whole run, from the
first cell to the last and without an error, or none.
"""

import argparse
import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
MAX_SECONDS = 2 * 300
"""Processor seconds of a notebook: five minutes of two cores."""


def code_cells(path: Path) -> list[Any]:
    """Return the code cells of a notebook."""
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def reduced(path: Path) -> list[str]:
    """Return the code of a notebook, with the small sizes that its first code cell names."""
    cells = code_cells(path)
    assert cells[0]["metadata"]["tags"] == ["parameters"], f"{path.name} begins with its sizes"
    return [cells[0]["metadata"]["reduced"], *("".join(cell["source"]) for cell in cells[1:])]


def problems(path: Path) -> list[str]:
    """Return what shows that the outputs of a notebook are not those of one whole run."""
    lines, cells = list[str](), code_cells(path)
    if all(cell["execution_count"] is None and not cell["outputs"] for cell in cells):
        return []
    for i, cell in enumerate(cells, start=1):
        if cell["execution_count"] != i:
            lines.append(f"{path.name}: cell {i} has the number {cell['execution_count']}")
        if any("ename" in out or out.get("name") == "stderr" for out in cell["outputs"]):
            lines.append(f"{path.name}: cell {i} ends with an error, or warns")
    return lines


def execute(path: Path, *, dry: bool) -> float:
    """Execute a notebook, write its outputs unless `dry`, and return the processor seconds."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"  # tqdm asks for widgets
    begin = _child_seconds()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=None, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    notebook.metadata.language_info = {"name": "python"}
    if not dry:
        nbformat.write(notebook, path)
    return _child_seconds() - begin


def _child_seconds() -> float:
    """Return the processor seconds of the processes that this one started and that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Execute, or check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="notebooks; by default all")
    parser.add_argument("--dry", action="store_true", help="write no file")
    parser.add_argument("--check", action="store_true", help="execute nothing")
    given = parser.parse_args()
    paths = [FOLDER / f"{name}.ipynb" for name in given.names] or sorted(FOLDER.glob("*.ipynb"))
    if given.check:
        lines = [line for path in paths for line in problems(path)]
        print("".join(f"{line}: run `make tutorials`\n" for line in lines), end="")
        return int(bool(lines))
    for path in paths:
        seconds = execute(path, dry=given.dry)
        print(f"{path.name}: {seconds:.0f} processor seconds", flush=True)
        assert seconds < MAX_SECONDS, f"{path.name} takes longer than {MAX_SECONDS}"
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
