import html
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import widefield
from html_page import HOSTILE, HtmlPage, assert_escaped, assert_stands_alone
from widefield.report import AccuracyTable, Lines, RunReport


def views(examples: int = 2, side: int = 8, channels: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (examples, 3, side, side, channels), dtype=np.uint8)


def curve(title: str = "c", **options: Any) -> Lines:
    given = {"caption": "", "x_label": "epoch", "series": {"y": ([1], [4.0])}}
    return Lines(title=title, **{**given, **options})


def full(text: str = "plain") -> RunReport:
    """A report that uses every field, with `text` wherever a string goes."""
    return RunReport(
        title=text,
        summary=text,
        table=AccuracyTable(
            rows=[text, "other"],
            columns=["pixels", text],
            cells={(text, "pixels"): (0.25, 0.2, 0.31), (text, text): (0.5, 0.45, 0.55)},
            focus=text,
        ),
        curves=[
            curve(text, series={text: ([1, 2, 3], [3.0, 2.0, 1.5])}, caption=text, x_label=text),
            curve("second", y_range=(0, None)),
        ],
        view_grid=views(),
        health=[(3, f"healthy: {text}"), (4, text)],
        next_steps=[text, f"`{text}`"],
        metadata={text: text, "path": f"/tmp/{text}/images"},
    )


def test_every_string_is_escaped() -> None:
    # Escaped is not lost: title, h1, summary, task, column twice, curve title and how,
    # x label twice, health, two steps, fact and value, path.
    assert_escaped(full(HOSTILE).html(), 15)


def test_the_page_needs_nothing_else_and_is_well_formed() -> None:
    assert_stands_alone(full().html())


def test_the_verdict_comes_first() -> None:
    report = full()
    text = HtmlPage(report.html()).text
    body = [piece.strip() for piece in text if piece.strip()]
    start = body.index("Linear-probe accuracy")
    assert body[start - 2 : start] == ["plain", "plain"]  # title and summary, nothing between


def test_the_table_shows_value_interval_and_bar() -> None:
    text = full().html()
    assert "25.0 %" in text
    assert "20.0 – 31.0" in text
    assert '<i style="width:25.00%"></i><b style="left:20.00%;width:11.00%"></b>' in text
    assert text.count("not measured") == 2  # nothing of the task "other"
    focused = re.findall(r'<tr class="row focus">\s*<th[^>]*>(.*?)</th>', text)
    assert focused == ["plain", "plain"]


def test_backticks_set_code_and_stay_escaped() -> None:
    text = RunReport(title="t", summary="Run `a <b>` now, then `c`.").html()
    assert "Run <code>a &lt;b&gt;</code> now, then <code>c</code>." in text


def test_what_is_empty_is_left_out() -> None:
    text = RunReport(title="Only a title", summary="and a verdict.").html()
    assert "<h2>" not in text
    assert full().html().count("<h2>") == 6
    for name in ("table", "curves", "view_grid", "health", "next_steps", "metadata"):
        fields = {"title": "t", "summary": "s", name: getattr(full(), name)}
        assert RunReport(**fields).html().count("<h2>") == 1, name


def test_health_words_carry_their_class() -> None:
    lines = [(1, "healthy: a"), (2, "collapsed: b"), (3, "evil: c")]
    text = RunReport(title="t", summary="s", health=lines).html()
    assert '<td class="word healthy">healthy</td><td class="numbers">a</td>' in text
    assert '<td class="word collapsed">collapsed</td><td class="numbers">b</td>' in text
    assert '<td class="word">evil</td>' in text


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_views_of_any_size_stay_small(channels: int) -> None:
    noise = views(examples=20, side=300, channels=channels)
    noise = np.concatenate([noise] * 4, axis=1)  # 12 images in a row
    report = RunReport(title="t", summary="s", view_grid=noise)
    assert len(report.html()) < 2_000_000
    images = [attrs for tag, attrs in HtmlPage(report.html()).tags if tag == "img"]
    assert len(images) == 36
    assert images[0]["alt"] == "image 1"
    assert images[7]["alt"] == "view 1 of image 2"


def test_the_same_report_gives_the_same_page() -> None:
    assert full().html() == full().html()


def test_writing_is_atomic_and_refuses_to_overwrite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = full().write(tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == full().html()
    with pytest.raises(ValueError, match="exists"):
        RunReport(title="new", summary="s").write(path)
    assert path.read_text(encoding="utf-8") == full().html()

    def fail(draft: Path, target: Path) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            RunReport(title="new", summary="s").write(path, overwrite=True)
    assert path.read_text(encoding="utf-8") == full().html()
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    RunReport(title="new", summary="s").write(path, overwrite=True)
    assert "<title>new</title>" in path.read_text(encoding="utf-8")
    assert full().write(tmp_path / "new" / "one" / "report.html").is_file()


def test_a_hostile_path_is_a_path(tmp_path: Path) -> None:
    folder = tmp_path / "<script>"
    folder.mkdir()
    report = RunReport(title="t", summary="s", metadata={"data": str(folder)})
    text = report.write(folder / "a & b.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert html.escape(str(folder)) in text


@pytest.mark.parametrize("cell", [(0.5, 0.6, 0.7), (0.5, 0.4, 1.2), (50.0, 40.0, 60.0)])
def test_impossible_and_stray_cells_and_grids_are_refused(cell: tuple[float, ...]) -> None:
    for cells in ({("a", "b"): cell}, {("b", "a"): (0.5, 0.4, 0.6)}):
        with pytest.raises(AssertionError):
            AccuracyTable(rows=["a"], columns=["b"], cells=cells)
    with pytest.raises(AssertionError, match="float32"):
        RunReport(title="t", summary="s", view_grid=views().astype(np.float32)).html()


def test_gaps_and_huge_values_can_be_drawn() -> None:
    nan = float("nan")
    for y in ([1.0, nan, 2.0], [nan, nan, nan], [1e30, 1e-30, 0.0], [5.0, 5.0, 5.0]):
        gaps = curve(series={"y": ([0, 1, 2], y)})
        assert "<svg" in RunReport(title="t", summary="s", curves=[gaps]).html()


def test_reports_load_neither_torch_nor_matplotlib_before_a_figure_is_drawn() -> None:
    """The room by itself, whatever the package above it loads."""
    code = (
        "import sys, types\n"
        "package = types.ModuleType('widefield')\n"
        f"package.__path__ = {list(widefield.__path__)!r}\n"
        "sys.modules['widefield'] = package\n"
        "import widefield.report\n"
        "print(sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
