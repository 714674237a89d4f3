"""Tables of the README and the docs are written from results, and results say how they arose."""

import json
import re
from pathlib import Path

import pytest

import tables
from pages.format import RESULTS, ROOT

FILES = sorted([*RESULTS.rglob("*.json"), *(ROOT / "studies" / "results").glob("*.json")])
TIMINGS = (
    "bench_",
    "costs",
    "decoders",
    "first_hour",
    "plan_check",
    "processes",
    "release",
    "scale",
    "store_comparison",
    "kills",
    "map_cost",
    "full_disk",
)
"""How the names of results begin that draw nothing which a seed would change."""


def test_what_is_written_is_fresh() -> None:
    """`make tables` would change nothing, and the pictures show the views of today."""
    assert tables.problems() == []


def test_a_number_changed_by_hand_is_noticed() -> None:
    page = ROOT / "docs" / "methods.md"
    text = page.read_text()
    changed = text.replace("| 1 | 1.08 |", "| 1 | 1.07 |")
    assert changed != text
    assert tables.rewritten(changed) == text


def test_every_block_stands_on_a_page() -> None:
    names = [name for page in tables.page_paths() for name in tables.block_names(page.read_text())]
    own = {name for name in names if not name.startswith(tables.STUDY)}
    assert own == set(tables.BLOCKS)


def test_an_unknown_block_is_refused() -> None:
    with pytest.raises(ValueError, match="no block is called 'else'"):
        tables.rewritten("<!-- table: else -->\n<!-- end -->")


@pytest.mark.parametrize("page", tables.page_paths(), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_table_has_numbers_typed_by_hand(page: Path) -> None:
    if str(page.relative_to(ROOT)) in tables.FILES:
        return  # it is written whole
    by_hand = tables.MARKED.sub("", page.read_text())
    lines = [line for line in by_hand.splitlines() if line.startswith("|")]
    assert [line for line in lines if re.search(r"\d\.\d", line)] == []


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.name)
def test_a_result_names_machine_versions_and_seeds(file: Path) -> None:
    result = json.loads(file.read_text())
    versions = result["machine"].keys() & {"torch", "numpy"}
    assert {"cpu", "python"} <= result["machine"].keys()
    assert versions
    if not file.name.startswith(TIMINGS) and "bench_step" not in file.parts:
        assert "seed" in json.dumps(result)


def test_a_step_is_measured_beside_the_bare_encoder_of_its_own_process() -> None:
    for file in (RESULTS / "bench_step").rglob("*.json"):
        result = json.loads(file.read_text())
        assert list(result["ratios"]) == [f"{file.stem}/bare"], file
        assert {"bare_seconds", f"{file.stem}_seconds"} <= result["values"].keys(), file
