"""Every script under benchmarks/ prints its help, and results say where they were made."""

import json
import math
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from widefield.head import decoupled_contrast
from widefield.methods import METHODS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS, RESULTS = sorted(BENCHMARKS.glob("*.py")), BENCHMARKS / "results"
SHARED = ("study", "dropout_histogram", "wide_teacher")
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


def test_rates_of_any_objective_are_compared_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rates, study = import_module("method_rates"), import_module("study")
    monkeypatch.setattr(study, "VALIDATION", 30)
    pixels = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", images=pixels, labels=np.arange(60) % 2, classes=["a", "b"])
    command = f"rates mmcr {tmp_path}/x.npz --json {tmp_path}/r.json --factor 1 --factor 3 --seed 4"
    monkeypatch.setattr(sys, "argv", f"{command} --epochs 1 --max-examples 24".split())
    rates.main()
    kept = json.loads((tmp_path / "r.json").read_text())
    lr = METHODS["mmcr"]().lr
    assert [(run["lr"], run["seed"]) for run in kept["runs"].values()] == [(lr, 4), (3 * lr, 4)]
    assert kept["accuracy"].keys() == {f"{lr:g}", f"{3 * lr:g}"}
    assert {"cpu", "python", "torch"} <= kept["machine"].keys()
    monkeypatch.delattr(rates, "_run")  # runs that are kept are not repeated
    rates.main()
    assert capsys.readouterr().out.count(f"lr {lr:g} ") == 2


def test_the_contrast_with_earlier_batches_is_the_formula() -> None:
    contrast = import_module("beyond_the_batch").contrast
    random = torch.Generator().manual_seed(0)
    z, second, positive, more = (
        F.normalize(torch.randn(n, 3, generator=random), dim=1) for n in (4, 4, 4, 2)
    )
    terms = []
    for i in range(4):
        others = [other for j in range(4) if j != i for other in (second[j], z[j])]
        near = sum(math.exp(5 * z[i] @ other) for other in (*others, *more))
        terms.append(math.log(near) - 5 * float(z[i] @ positive[i]))
    value = contrast(z, second, positive, more, scale=5.0)
    torch.testing.assert_close(float(value), sum(terms) / 4)
    alone = contrast(z, second, second, more[:0], scale=5.0)
    torch.testing.assert_close(alone, decoupled_contrast(z, second, scale=5.0))
