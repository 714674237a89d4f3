"""Numbers in the README and the docs are those of the committed results."""

import json
import runpy
from pathlib import Path

from widefield.methods import METHODS

ROOT = Path(__file__).parents[2]
STUDY = json.loads((ROOT / "benchmarks" / "results" / "recipe_study.json").read_text())


def test_the_page_of_rows_has_the_measured_numbers() -> None:
    rows_page = runpy.run_path(str(ROOT / "benchmarks" / "rows_page.py"))
    assert (ROOT / "docs" / "rows.md").read_text() == rows_page["page"]()


def cell(found: dict[str, float]) -> str:
    return f"{found['mean']:.1f} ± {found['half_width']:.1f}"


def test_the_recipe_study_is_quoted_as_it_is() -> None:
    readme = (ROOT / "README.md").read_text()
    recipe = (ROOT / "docs" / "recipe.md").read_text()
    final = STUDY["final"]
    for method, name in (("s-diet", "S-DIET"), ("simclr", "SimCLR")):
        cells = [cell(final[f"cifar10+digits / {task}"][method]) for task in ("class", "digits")]
        runs = [r for r in STUDY["runs"].values() if r["method"] == method]
        seconds = sum(r["processor_seconds"] for r in runs) / len(runs)
        row = next(line for line in readme.splitlines() if line.startswith(f"| {name},"))
        assert row.split("|")[2:5] == [f" {cells[0]} ", f" {cells[1]} ", f" {seconds:.0f} "]
        assert f"| {name} | {cells[0]} | {cells[1]} |" in recipe
    gaps = [final[f"cifar10+digits / {t}"]["s-diet minus simclr"] for t in ("class", "digits")]
    assert f"| {gaps[0]['mean']:+.1f} ± {gaps[0]['half_width']:.1f} |" in recipe
    assert f"| {gaps[1]['mean']:+.1f} ± {gaps[1]['half_width']:.1f} |" in recipe


def test_the_table_of_objectives_has_every_method_and_its_measured_step() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    results = ROOT / "benchmarks" / "results" / "bench_step_resnet-tiny.json"
    ratios = json.loads(results.read_text())["ratios"]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(METHODS)
    for row in rows:
        name, step = row.split("`")[1], row.rsplit("|", 3)[1]
        assert step.strip() == f"{ratios[f'{name}/bare']:.2f}", name
