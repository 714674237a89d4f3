"""Verdicts and figures on the page: escaped, well formed, readable at any width."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from html_page import HOSTILE, assert_escaped, assert_stands_alone
from made_audit import pictures
from widefield.report import (
    AuditReport,
    Bars,
    Gallery,
    HeatMap,
    Lines,
    ScatterPlot,
    TaskVerdict,
)

LONG = "a/very/long/path/without/any/space/" * 4


def audited(text: str = "plain") -> AuditReport:
    """An audit's page that uses every part, with `text` wherever a string goes."""
    learned = (0.5, 0.4, 0.6)
    return AuditReport(
        title=text,
        summary=text,
        notes=[text],
        verdicts=[
            TaskVerdict(task=text, encoder=text, word="weakened", learned=learned, numbers=text),
            TaskVerdict(
                task=text,
                encoder="other",
                word="hidden",
                learned=None,
                numbers=text,
                no_bar=f"in stage s3, {text}",
            ),
            TaskVerdict(task="second", encoder=text, word="learned", learned=learned, numbers=text),
        ],
        next_steps=[text],
        figures=[
            Lines(
                title=text,
                caption=text,
                series={text: ([1, 2, 3], [0.1, np.nan, 0.3]), "b": ([1, 2], [0.5, 0.2])},
                x_label=text,
                y_label=text,
                y_range=(0, 1),
            ),
            Lines(
                title="spectrum",
                caption="how",
                series={"one": ([1, 10, 100], [1, 0.1, 0.01])},
                x_label="direction",
                y_label="share",
                log_scale=True,
            ),
            Bars(title=text, caption=text, shares={text: 0.25, LONG: 1.0}),
            HeatMap(
                title=text,
                caption=text,
                rows=[text, "s4"],
                columns=["1 x 1", "4 x 4"],
                cells={
                    (text, "1 x 1"): (0.3, 0.2, 0.4, 0.5),
                    ("s4", "4 x 4"): (0.8, 0.7, 0.9, 0.6),
                },
                reference=text,
            ),
            Gallery(title=text, caption=text, rows=[(text, pictures(8))], separate_first=True),
            ScatterPlot(
                title=text,
                caption=text,
                points=np.random.default_rng(0).normal(size=(30, 2)).tolist(),
                images=pictures(30),
                names=[text] * 29 + [LONG],
                groups=list(range(30)),
            ),
        ],
        diagnostics=[(text, text, text)],
        metadata={text: text, "path": LONG},
    )


def test_every_string_is_escaped() -> None:
    # Title twice, summary, note, task, two encoders, four numbers, step, five titles and hows, two
    # labels, a legend, a bar, a row, 29 points, a diagnostic, a fact and its value.
    assert_escaped(audited(HOSTILE).html(), 49)


def test_the_page_needs_no_script_and_nothing_from_elsewhere() -> None:
    assert_stands_alone(audited().html())


def test_verdicts_come_first_then_what_to_try_then_figures() -> None:
    text = audited().html()
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles == [
        "Learned, hidden and lost features",
        "What to try next",
        "Details",
        "Feature statistics",
        "How to reproduce this",
    ]


def test_a_verdict_shows_its_word_bar_and_interval() -> None:
    text = audited().html()
    assert '<b class="weakened">weakened</b>' in text
    assert '<i style="width:50.00%"></i><b style="left:40.00%;width:20.00%"></b>' in text
    assert "40 – 60" in text
    assert text.count("in stage s3, plain") == 1
    assert '<b class="hidden">hidden</b>' in text
    # The encoder is named where there are several to a task.
    assert text.count("<span>other</span>") == 1
    assert text.count("</b>\n<span>plain</span>") == 1


def test_a_heat_map_shows_each_share_beside_its_reference() -> None:
    text = audited().html()
    assert re.search(r'<td class="" style="--share:30%"[^>]*><b>30</b> <small>50</small>', text)
    assert re.search(r'<td class="deep" style="--share:80%"[^>]*><b>80</b> <small>60</small>', text)
    assert "95 % interval 70 to 90 %; plain 60 %" in text
    assert text.count("<td></td>") == 3  # the corner, and two cells that were not measured


def test_each_curve_has_a_color_and_a_shape_of_its_own() -> None:
    text = audited().html()
    assert '<span style="color:var(--accent)">●</span> plain' in text
    assert '<span style="color:var(--second)">■</span> b' in text
    for color in ("--accent", "--second"):
        assert f"stroke: var({color})" in text


def test_parts_that_cannot_be_drawn_are_refused() -> None:
    cells = {"title": "t", "caption": "h", "rows": ["a"], "columns": ["b"], "reference": "r"}
    axes = {"title": "t", "caption": "h", "x_label": "x", "y_label": "y"}
    three = {"points": [(0.0, 0.0)] * 3, "names": ["a"] * 3, "groups": [0] * 3}
    for draw in (
        lambda: HeatMap(cells={("a", "c"): (0.1, 0.1, 0.1, 0.1)}, **cells),
        lambda: HeatMap(cells={("a", "b"): (0.1, 0.1, 1.1, 0.1)}, **cells),
        lambda: Lines(series={}, **axes),
        lambda: Lines(series={str(i): ([1], [1]) for i in range(5)}, **axes),
        lambda: Lines(series={"a": ([1, 2], [1])}, **axes),
        lambda: Lines(series={"a": ([], [])}, **axes),
        lambda: ScatterPlot(title="t", caption="h", images=pictures(2), **three),
    ):
        with pytest.raises(AssertionError):
            draw()


FIXED = re.compile(r"(?<![-\w.])(\d*\.?\d+)(rem|px)")
WIDTHS = (390, 1280)


def fixed_rem(tracks: str) -> float:
    """Width that the tracks of a grid take whatever the page's, in rem."""
    rigid = re.sub(r"minmax\((0|min\()[^()]*\)?[^()]*\)", "", tracks)
    return sum(float(n) / (1 if unit == "rem" else 16) for n, unit in FIXED.findall(rigid))


def keeps_the_layout_rules(text: str) -> bool:
    """Nothing in the page has a width of its own that a phone of 390 pixels has not."""
    tracks = re.findall(r"grid-template-columns:\s*([^;}\"]+)", text)
    widths = re.findall(r"(?<!max-)(?<!min-)\bwidth: (\d*\.?\d+)rem", text)
    return (
        len(tracks) >= 6
        and all(fixed_rem(row) <= 14 for row in tracks)
        and all(float(width) <= 10 for width in widths)
        and "overflow-wrap: anywhere" in text
        and len(re.findall(r"(?:svg|img) \{ display: block; width: 100%", text)) >= 3
        and 'name="viewport" content="width=device-width' in text
    )


def overflow(text: str, folder: Path, browser: str) -> list[int]:
    """By how many pixels the page is wider than frames of `WIDTHS`, as the browser lays it out."""
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    (folder / "page.html").write_text(open_page)
    measure = "(d => d.scrollWidth - d.clientWidth)(f.contentDocument.documentElement)"
    (folder / "frames.html").write_text(
        "".join(f'<iframe src="page.html" width={w} height=900></iframe>' for w in WIDTHS)
        + "<script>onload = () => { document.title = [...document.querySelectorAll('iframe')]"
        f".map(f => {measure}).join(' ') + ' measured' }}</script>"
    )
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    options += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
    options += ["--disable-sync", f"--user-data-dir={folder}/profile", "--window-size=1800,1000"]
    done = subprocess.run(
        [browser, *options, "--dump-dom", (folder / "frames.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = re.search(r"<title>(.*?) measured</title>", done.stdout)
    assert said is not None, done.stdout[:500]
    return [int(value) for value in said[1].split()]


def test_the_layout_rules_hold_and_can_be_broken() -> None:
    text = audited(LONG).html()
    assert keeps_the_layout_rules(text)
    assert not keeps_the_layout_rules(text.replace("minmax(0, 9rem)", "30rem"))
    assert not keeps_the_layout_rules(text.replace("overflow-wrap: anywhere", ""))


def test_nothing_is_wider_than_the_screen(tmp_path: Path) -> None:
    """By a browser where there is one; the rules above hold everywhere."""
    text = audited(LONG).html()
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        assert keeps_the_layout_rules(text)
        return
    assert overflow(text, tmp_path, browser) == [0, 0]
    wide = text.replace("<main>", '<main><p style="width:2000px">wide</p>')
    assert min(overflow(wide, tmp_path, browser)) > 500
