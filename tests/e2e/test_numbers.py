"""Numbers in the README and the docs are those of the committed results."""

import json
import re
import runpy
import statistics
from pathlib import Path

from widefield.methods import METHODS

ROOT = Path(__file__).parents[2]
STUDY = json.loads((ROOT / "benchmarks" / "results" / "recipe_study.json").read_text())
LEARNED = ("learned", "learned_low", "learned_high")
ACCURACIES = ("accuracy", "floor", "ceiling")


def test_the_page_of_rows_has_the_measured_numbers() -> None:
    rows_page = runpy.run_path(str(ROOT / "benchmarks" / "rows_page.py"))
    assert (ROOT / "docs" / "rows.md").read_text() == rows_page["page"]()


def measured(found: dict[str, float]) -> str:
    return f"{found['mean']:.1f} ± {found['half_width']:.1f}"


def test_the_recipe_study_is_quoted_as_it_is() -> None:
    """S-DIET, and SimCLR at its own learning rate and at another, with the differences."""
    tasks = ("cifar10+digits / class", "cifar10+digits / digits", "cifar10 / class")
    rows = [study_row("S-DIET, 50 epochs, one view", "final", "s-diet", tasks)]
    for part, more, at in (("final", "two views", ""), ("rate", "learning rate 2e-2", " at 2e-2")):
        rows.append(study_row(f"SimCLR, 27 epochs, {more}", part, "simclr", tasks))
        gaps = [STUDY[part][task]["s-diet minus simclr"] for task in tasks]
        signed = [f"{gap['mean']:+.1f} ± {gap['half_width']:.1f}" for gap in gaps]
        rows.append([f"S-DIET minus SimCLR{at or ', seed by seed'}", *signed, ""])
    for page in ("README.md", "docs/recipe.md"):
        lines = [cells(line) for line in (ROOT / page).read_text().splitlines()]
        for row in rows:
            assert row in lines, (page, row)


def study_row(said: str, part: str, method: str, tasks: tuple[str, ...]) -> list[str]:
    """Means over three seeds on both data sets, and the mean cost."""
    runs = [r for r in STUDY["runs"].values() if (r["part"], r["method"]) == (part, method)]
    assert len(runs) == 6
    seconds = statistics.mean(run["processor_seconds"] for run in runs)
    return [said, *(measured(STUDY[part][task][method]) for task in tasks), f"{seconds:.0f}"]


def test_the_floors_are_quoted_as_they_are() -> None:
    runs = json.loads((ROOT / "benchmarks" / "results" / "objectives.json").read_text())["runs"]
    for method, name in (("pixels", "pixels"), ("random encoder", "the encoder untrained")):
        row = [f"floor: {name}"]
        for data, task in (("+digits", "class"), ("+digits", "digits"), ("", "class")):
            found = [
                100 * run["accuracy"][task]
                for run in runs.values()
                if (run.get("method"), run.get("data")) == (method, f"cifar10{data}")
            ]
            row.append(f"{statistics.mean(found):.1f}")
        for page in ("README.md", "docs/recipe.md"):
            lines = (ROOT / page).read_text().splitlines()
            assert any(quoted(line)[:4] == row for line in lines), (page, row)


def test_every_run_of_one_seed_is_quoted_as_it_is() -> None:
    """The settings that were tried, and the longer runs."""
    rows: dict[str, dict[str, str]] = {}
    for run in STUDY["runs"].values():
        if run["part"] in ("final", "rate"):
            continue
        name = {"s-diet": "S-DIET", "simclr": "SimCLR"}[run["method"]]
        said = run["name"] if run["part"] == "knobs" else f"{run['settings']['epochs']} epochs"
        for task, accuracy in run["accuracy"].items():
            row = rows.setdefault(f"{name}, {said}", {})
            row[f"{run['data']} / {task}"] = f"{100 * accuracy:.1f}"
    planted = ("cifar10+digits / class", "cifar10+digits / digits")
    lines = [cells(line) for line in (ROOT / "docs" / "recipe.md").read_text().splitlines()]
    for name, row in rows.items():
        columns = planted if name.endswith(" epochs") else (*planted, "cifar10 / class")
        assert [name, *(row.get(column, "") for column in columns)] in lines, name


def test_the_longest_runs_are_in_the_readme() -> None:
    longest = {r["method"]: r["accuracy"] for r in STUDY["runs"].values() if r["part"] == "longer"}
    said = [
        f"{100 * longest[method][task]:.1f} %"
        for method in ("s-diet", "simclr")
        for task in ("class", "digits")
    ]
    (line,) = (x for x in (ROOT / "README.md").read_text().splitlines() if "ten times as long" in x)
    assert re.findall(r"[\d.]+ %", line) == said


def test_the_audit_of_cifar10_is_quoted_as_it_is() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "audit_cifar10.json").read_text())
    lines = [cells(line) for line in (ROOT / "docs" / "audit.md").read_text().splitlines()]
    (run,) = found["compared"].values()
    named = {"timm:resnet18, random weights": found["tasks"], "s-diet-run": run}
    for name, tasks in named.items():
        one = tasks["class"]
        share, low, high = (f"{100 * one[key]:.0f}" for key in LEARNED)
        probe, floor, ceiling = (f"{100 * one[key]:.1f} %" for key in ACCURACIES)
        row = [name, one["verdict"], f"{share} % [{low}, {high}]", probe]
        assert one["floor_of"] == "pixels"
        assert [*row, f"{floor} (raw pixels)", ceiling] in lines


def cells(line: str) -> list[str]:
    return [part.strip() for part in line.strip("|").split("|")]


def quoted(line: str) -> list[str]:
    """Cells of a row of a table; of the first, what is before a comma."""
    first, *others = cells(line)
    return [first.split(",")[0], *others]


def test_the_ratios_in_the_readme_are_those_on_file() -> None:
    ratios = {
        name: json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["ratios"]
        for name in (
            "bench_step_resnet-tiny",
            "bench_step_resnet18",
            "bench_head_resnet-tiny",
            "bench_views",
            "bench_probe",
        )
    }
    tiny, large, head, views, probe = ratios.values()
    rows = {
        "step`": [
            bench[f"{method}/bare"] for bench in (tiny, large) for method in ("s-diet", "simclr")
        ],
        "head`": [head["step@1e7/step@1e4"]],
        "views`": [views["widefield/kornia"], views["widefield/torchvision"]],
        "probe`": [probe["sklearn/widefield"]],
    }
    lines = (ROOT / "README.md").read_text().splitlines()
    for command, expected in rows.items():
        (line,) = [each for each in lines if f"`widefield bench {command}" in each]
        said = re.findall(r"(?<![\w-])\d+(?:\.\d+)?(?!\w)", line.split("|")[2])
        assert said == [f"{x:.2f}" if x < 5 else f"{x:.0f}" for x in expected], line


def test_the_table_of_objectives_has_every_method_and_its_measured_step() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    results = ROOT / "benchmarks" / "results" / "bench_step_resnet-tiny.json"
    ratios = json.loads(results.read_text())["ratios"]
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(METHODS)
    for row in rows:
        name, step = row.split("`")[1], row.rsplit("|", 3)[1]
        assert step.strip() == f"{ratios[f'{name}/bare']:.2f}", name
    both = ratios["byol-both-directions/bare"]
    large = json.loads((ROOT / "benchmarks" / "results" / "bench_step_resnet18.json").read_text())
    slower = large["ratios"]["byol-both-directions/bare"]
    assert f"{both:.2f} bare steps, and {slower:.2f} with resnet18" in page
