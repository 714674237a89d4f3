"""Write what the README, the docs and the code take from results and from other code.

    python scripts/tables.py            # write all of it
    python scripts/tables.py --check    # name what is stale, and exit with 1

On a page, the lines between `<!-- table: NAME -->` or `<!-- text: NAME -->` and `<!-- end -->` are
those of `BLOCKS[NAME]`, or the table of the study ID for the name study-ID. `FILES` are written
whole.
"""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # studies/

import api
import arguments
import losses
import options
import view_pictures
from pages import (
    audit,
    cluster,
    data,
    explore,
    methods,
    papers,
    plants,
    promises,
    readme,
    recipes,
    rows,
    starts,
    steps,
    untrained,
    verdicts,
    views,
)
from pages.format import ROOT
from studies import page as studies_page

BLOCKS: dict[str, Callable[[], str]] = {
    "short": readme.short,
    "summary": readme.summary,
    "summary-50000": readme.all_images,
    "dictionary": readme.dictionary,
    "ratios": steps.ratios,
    "lightly": steps.lightly,
    "both-directions": steps.both_directions,
    "compiled": steps.compiled,
    "viewmaker-step": steps.viewmaker,
    "methods": methods.methods,
    "method-settings": methods.settings,
    "losses": methods.losses,
    "recipes": recipes.recipes,
    "views": views.views,
    "view-presets": views.presets,
    "plants": plants.plants,
    "decoders": data.decoders,
    "reading": data.reading,
    "scale": data.scale,
    "near-copies": data.copies,
    "near-copies-seconds": data.copies_seconds,
    "exchanged": cluster.exchanged,
    "waiting": cluster.waiting,
    "diagnostics": audit.diagnostics,
    "audit-calibration": audit.calibration,
    "audit-calibration-summary": audit.calibration_summary,
    "audio-waits": steps.waits,
    "verdicts": verdicts.verdicts,
    "untrained": untrained.agreement,
    "untrained-encoders": untrained.by_encoder,
    "first-hour": starts.first_hour,
    "common-starts": starts.common_starts,
    "start-averages": starts.averages,
    "start-thresholds": starts.thresholds,
    "start-photographs": starts.photographs,
    "start-pairs": starts.pairs,
    "explore-planted": explore.planted,
    "explore-cost": explore.cost,
    "explore-iterations": explore.iterations,
    "commands-cost": explore.commands,
    "head": rows.head,
    "stores": rows.stores,
    "plans": rows.plans,
    "release": promises.release,
    "torture": promises.torture,
    "kills": promises.steps,
    "hostile": promises.calls,
    "papers-counts": papers.counts,
    "papers": papers.by_paper,
}
"""Every part of a page that is written, by the name in its markers."""

FILES: dict[str, Callable[[], str]] = {
    **{f"src/widefield/{path}": text for path, text in arguments.FILES.items()},
    "src/widefield/cli/calls.json": options.source,
    "src/widefield/losses.py": losses.source,
    "docs/studies.md": studies_page.text,
    "docs/api.txt": api.text,
}
"""Every file that is written whole, by its path."""

STUDY = "study-"
"""How the name of a block begins that is the table of a study."""

MARKED = re.compile(r"(<!-- (?:table|text): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def page_paths() -> list[Path]:
    """Return the README and all pages of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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
        if name.startswith(STUDY):
            return f"{begin}\n{studies_page.block(name.removeprefix(STUDY))}\n\n{end}"
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
    views = ", ".join(sorted(view_pictures.missing_views()))
    if views:
        lines.append(
            f"the pictures of docs/views.md differ in {views}: run `{view_pictures.COMMAND}`"
        )
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
