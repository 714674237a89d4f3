"""The notebooks of the tutorials run from the first cell to the last, on small sizes."""

import json
import warnings
from pathlib import Path

import matplotlib
import pytest

import tutorials

matplotlib.use("Agg")

PATHS = sorted(tutorials.FOLDER.glob("*.ipynb"))


def test_there_are_five() -> None:
    assert len(PATHS) == 5


@pytest.mark.usefixtures("in_tmp")
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers
        scope: dict[str, object] = {"__name__": path.stem}
        for code in tutorials.reduced(path):
            exec(compile(code, path.name, "exec"), scope)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_the_outputs_are_those_of_a_whole_run(path: Path) -> None:
    assert not tutorials.problems(path)
    assert path.stat().st_size < 1_000_000


def notebook(*counts: int | None) -> str:
    cells = [
        {"cell_type": "code", "source": [], "execution_count": count, "outputs": []}
        for count in counts
    ]
    return json.dumps({"cells": cells})


@pytest.mark.parametrize(
    ("counts", "lines"), [((1, 2), 0), ((None, None), 0), ((1, None), 1), ((2, 1), 2)]
)
def test_half_a_run_is_noticed(counts: tuple[int | None, ...], lines: int, tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(*counts))
    assert len(tutorials.problems(path)) == lines
