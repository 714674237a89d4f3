"""The tables of docs/studies.md: no more columns than a page is wide."""

from studies.page import table

DATA = ("plain", "digits", "shapes", "letters")


def measured(labels: int) -> dict[str, object]:
    names = [f"label {k}{kind}, %" for k in range(labels) for kind in ("", ", wide")]
    return {"measured": dict.fromkeys(names, 50.0)}


def head(runs: dict[str, dict[str, object]]) -> tuple[list[str], list[str]]:
    """Return the titles of the columns, and the first cell of each row."""
    first, _, *rows = (line.strip("| ").split(" | ") for line in table(runs).splitlines())
    return first, [row[0] for row in rows]


def test_arms_share_rows_where_the_page_is_wide_enough() -> None:
    runs = {f"ours @ {name} | seed 0": measured(1) for name in DATA}
    titles, rows = head(runs)
    assert rows == ["ours"]
    assert titles[:2] == ["label 0, % (plain)", "label 0, wide, % (plain)"]


def test_arms_have_rows_of_their_own_in_a_wide_table() -> None:
    runs = {f"ours @ {name} | seed 0": measured(2) for name in DATA}
    titles, rows = head(runs)
    assert rows == [f"ours, {name}" for name in DATA]
    assert titles == ["label 0, %", "label 0, wide, %", "label 1, %", "label 1, wide, %"]


def test_labels_have_rows_of_their_own_in_a_wider_one() -> None:
    titles, rows = head({"ours | seed 0": measured(7), "theirs | seed 0": measured(7)})
    assert titles == ["accuracy, %", "wide, %"]
    assert len(rows) == 14
    assert rows[0] == "ours: label 0"


def test_measures_without_labels_stay_in_columns() -> None:
    one = {"measured": {f"measure {k}": 1.5 for k in range(20)}}
    titles, rows = head({"ours | seed 0": one})
    assert len(titles) == 20
    assert rows == ["ours"]
