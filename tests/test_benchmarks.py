"""Every script under benchmarks/ prints its help, and results say where they were made."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS, RESULTS = sorted(BENCHMARKS.glob("*.py")), BENCHMARKS / "results"
SHARED = ("study", "wide_teacher")
"""Imported by the scripts, and none themselves."""


@pytest.mark.parametrize("name", [path.stem for path in SCRIPTS if path.stem not in SHARED])
def test_help_is_printed(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(name).main()
    assert ended.value.code == 0
    assert f"usage: {name}.py" in capsys.readouterr().out


def _summarized() -> list[str]:
    """Name the scripts that compute the rest of their results from the runs."""
    found = (path.stem for path in SCRIPTS if (RESULTS / f"{path.stem}.json").exists())
    return [name for name in found if hasattr(import_module(name), "_summary")]


@pytest.mark.parametrize("name", _summarized())
def test_what_results_say_of_their_runs_is_what_the_script_computes(name: str) -> None:
    kept = json.loads((RESULTS / f"{name}.json").read_text())
    computed = import_module(name)._summary(kept["runs"])
    made_by_study = {"machine", "threads", "runs"}
    assert {key: kept[key] for key in kept.keys() - made_by_study} == json.loads(
        json.dumps(computed)
    )


def test_a_run_made_elsewhere_names_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's machine is that of its first run, and no later run passes for one of it."""
    study = import_module("study")
    file = tmp_path / "results.json"
    for name, cpu in (("first", "a"), ("second", "b"), ("third", "a")):
        monkeypatch.setattr(study, "machine", lambda device, cpu=cpu: {"cpu": cpu})
        study.Results(file, lambda runs: {"count": len(runs)}).add(name, {"seed": 0})
    assert json.loads(file.read_text()) == {
        "machine": {"cpu": "a"},
        "threads": torch.get_num_threads(),
        "count": 3,
        "runs": {
            "first": {"seed": 0},
            "second": {"seed": 0, "machine": {"cpu": "b"}},
            "third": {"seed": 0},
        },
    }
