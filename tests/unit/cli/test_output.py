"""Tables show names as they are, and whole."""

import re

import pytest

from widefield.cli.output import print_tables
from widefield.report.tables import ResultTable

NAMES = ["[red]x[/red]", "m[/x]", ":cat:", "Pseudomonas_aeruginosa_wildtype_PAO1", "\x1b[31m"]


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    title = f"{NAMES[0]}, scored on {NAMES[1]}"
    rows = [[name, name] for name in NAMES]
    print_tables(ResultTable(title=title, columns=["class", NAMES[0]], rows=rows))
    return capsys.readouterr().out


def test_names_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    title, _, heading, *rows = printed(capsys).splitlines()
    assert title.strip() == "[red]x[/red], scored on m[/x]"
    assert heading.split() == ["class", "[red]x[/red]"]
    shown = [row.split() for row in rows if row.strip(" ─")]
    assert shown[:4] == [[name, name] for name in NAMES[:4]]
    assert "\x1b" not in str(shown)


def test_nothing_is_cut_short_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert "…" not in printed(capsys)
    assert printed(capsys).count(NAMES[3]) == 2


def test_a_narrow_terminal_folds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    said = re.sub(r"\x1b\[\d*m", "", printed(capsys))  # bold headings
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 40


def test_a_title_wider_than_its_table_stays_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_tables(ResultTable(title="2,000 x 128 features", columns=["a"], rows=[["b"]]))
    assert capsys.readouterr().out.splitlines()[0] == "2,000 x 128 features"
