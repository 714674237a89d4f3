"""Write what the README, the docs and the code take from results and from other code.

    python scripts/tables.py            # write all of it
    python scripts/tables.py --check    # name what is stale, and exit with 1

On a page, the lines between `<!-- table: NAME -->` or `<!-- text: NAME -->` and `<!-- end -->` are
those of `BLOCKS[NAME]`. `FILES` are written whole.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import arguments
import losses
from pages import (
    architecture,
    audio,
    audit,
    bits,
    budgets,
    equal_time,
    explore,
    keeping,
    methods,
    normalization,
    objectives,
    papers,
    pictures,
    plants,
    promises,
    readout,
    recipes,
    rows,
    settings_tried,
    staleness,
    start_table,
    steps,
    suggest,
    untrained,
    verdicts,
    views,
)
from pages.format import ROOT

BLOCKS: dict[str, Callable[[], str]] = {
    "summary": readout.summary,
    "readout-gains": readout.gains,
    "readout-floors": readout.floors,
    "readout-criteria": readout.criteria,
    "readout-few": readout.few,
    "readout-reductions": readout.reductions,
    "equal-time": equal_time.equal_time,
    "differences": equal_time.differences,
    "winners": equal_time.winners,
    "table-settings": equal_time.settings,
    "longer": equal_time.longer,
    "lengths": equal_time.lengths,
    "choices": equal_time.choices,
    "budgets": budgets.budgets,
    "budget-gaps": budgets.gaps,
    "budget-rates": budgets.chosen,
    "learning-rates": settings_tried.learning_rates,
    "rates-beside": settings_tried.beside_rates,
    "row-rates": settings_tried.row_rates,
    "normalization": normalization.normalization,
    "bits-class": partial(bits.bits, "class"),
    "bits-bits": partial(bits.bits, "bits"),
    "ratios": steps.ratios,
    "both-directions": steps.both_directions,
    "viewmaker-step": steps.viewmaker,
    "methods": methods.methods,
    "method-settings": methods.settings,
    "losses": methods.losses,
    "recipes": recipes.recipes,
    "views": views.views,
    "keeping": keeping.keeping,
    "keeping-differences": keeping.differences,
    "keeping-objectives": keeping.objectives,
    "keeping-objective-differences": keeping.objective_differences,
    "plants": plants.plants,
    "objectives": objectives.overview,
    "objectives-plain": partial(objectives.by_data, ""),
    "objectives-shapes": partial(objectives.by_data, "+shapes"),
    "objectives-digits": partial(objectives.by_data, "+digits"),
    "objectives-letters": partial(objectives.by_data, "+letters"),
    "learned-views": objectives.learned_views,
    "costs": objectives.costs,
    "rates": objectives.rates,
    "diagnostics": audit.diagnostics,
    "audit-calibration": audit.calibration,
    "audit-calibration-summary": audit.calibration_summary,
    "feature-dropout": audit.feature_dropout,
    "recover": audit.recovered,
    "audio": audio.audio,
    "audio-speeds": audio.speeds,
    "audio-suppressed": audio.suppressed,
    "audio-waits": audio.waits,
    "staleness": staleness.by_number,
    "staleness-match": staleness.match,
    "staleness-remedies": staleness.remedies,
    "verdicts": verdicts.verdicts,
    "untrained": untrained.agreement,
    "untrained-encoders": untrained.by_encoder,
    "suggest": suggest.suggested,
    "start-table": start_table.start_table,
    "start-choices": start_table.choices,
    "start-audits": start_table.audits,
    "start-planted": start_table.planted,
    "start-balance": start_table.balance,
    "start-labels": start_table.labels,
    "start-tuning": start_table.tuning,
    "start-transformer": start_table.transformer,
    "view-contrast": settings_tried.weights,
    "earlier-batches": settings_tried.earlier_batches,
    "batch-size": settings_tried.batches,
    "micro-batch": settings_tried.parts,
    "explore-planted": explore.planted,
    "explore-cost": explore.cost,
    "explore-maps": explore.maps,
    "explore-clusters": explore.clusters,
    "explore-granularity": explore.granularity,
    "head": rows.head,
    "stores": rows.stores,
    "moments": rows.moments,
    "plans": rows.plans,
    "cosines": rows.cosines,
    "torture": promises.torture,
    "kills": promises.steps,
    "hostile": promises.calls,
    "papers-counts": papers.counts,
    "papers": papers.by_paper,
}
"""Every part of a page that is written, by the name in its markers."""

FILES: dict[str, Callable[[], str]] = {
    "src/widefield/config/arguments.py": arguments.source,
    "src/widefield/losses.py": losses.source,
    "docs/budgets.svg": budgets.svg,
    "docs/keeping.svg": keeping.svg,
    "docs/architecture.svg": architecture.svg,
}
"""Every file that is written whole, by its path."""

MARKED = re.compile(r"(<!-- (?:table|text): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_paths() -> list[Path]:
    """Return the README, all pages of the docs and the notebook of the benchmarks."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *docs, ROOT / "benchmarks" / "NOTEBOOK.md"]


def block_names(text: str) -> list[str]:
    """Return the names of the blocks on a page."""
    return [match[2] for match in MARKED.finditer(text)]


def rewritten(text: str) -> str:
    """Return a page with each of its blocks as it is today.

    Raises:
        ValueError: there is no such block.
    """

    def write(match: re.Match[str]) -> str:
        begin, name, end = match.groups()
        if name not in BLOCKS:
            raise ValueError(f"no block is called {name!r}: add it to BLOCKS in scripts/tables.py")
        return f"{begin}\n{BLOCKS[name]()}\n\n{end}"

    return MARKED.sub(write, text)


def current() -> Iterator[tuple[Path, str]]:
    """Return every file that this command writes, with the text that it should have."""
    for page in page_paths():
        text = page.read_text()
        if block_names(text):
            yield page, rewritten(text)
    for path, write in FILES.items():
        yield ROOT / path, write()


def problems() -> list[str]:
    """Return a line for each file that is not what it should be."""
    lines = [
        f"{path.relative_to(ROOT)} is stale: run `make tables` and commit what it writes"
        for path, text in current()
        if not path.exists() or path.read_text() != text
    ]
    views = ", ".join(sorted(pictures.missing_views()))
    if views:
        lines.append(f"the pictures of docs/views.md differ in {views}: run `{pictures.COMMAND}`")
    return lines


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stale")
    if parser.parse_args().check:
        lines = problems()
        print("".join(f"{line}\n" for line in lines), end="")
        return int(bool(lines))
    for path, text in current():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
