import base64
import gzip
import hashlib
import io
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from widefield.report import explore
from widefield.report.atlas import atlas
from widefield.report.explore import Coloring, ExplorePage, ImageGroup, Section
from widefield.report.tables import ResultTable

HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"&'\u2028"
N = 50


def pictures(n: int = N, side: int = 16, channels: int = 3) -> np.ndarray:
    """Smooth pictures: each a slope, brighter than that of the one before it."""
    slope = np.linspace(0.5, 1, side)[:, None, None] * np.ones((side, side, channels))
    return (np.linspace(40, 255, n)[:, None, None, None] * slope).astype(np.uint8)


def page(text: str = "plain", images: np.ndarray | None = None) -> ExplorePage:
    images = pictures() if images is None else images
    n = len(images)
    places = np.random.default_rng(1).normal(size=(n, 2))
    return ExplorePage(
        title=text,
        summary=text,
        images=images,
        paths=[f"{text}/{i}" for i in range(n)],
        points=places,
        neighbors=(np.arange(n)[:, None] + np.arange(1, 4)) % n,
        sizes=np.stack([np.arange(n) + 8, np.full(n, 16)], axis=1),
        colorings=[
            Coloring(name=text, values=[text, "b"], ids=np.arange(n) % 3 - 1, role="task"),
            Coloring(name="guess", values=[text], ids=np.zeros(n, int), role="prediction"),
        ],
        tables=[ResultTable(title=text, columns=[text, "%"], rows=[[text, text]], lines=[text])],
        sections=[
            Section(
                name="outliers",
                title=text,
                caption=text,
                groups=[ImageGroup(title=text, rows=[3, 1], captions=[text, "c"])],
            )
        ],
        notes=[text],
        metadata={text: text},
    )


def unpacked(html: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return head and arrays, read as the page's script reads them."""
    (text,) = re.findall(r'id="data">([^<]*)</script>', html)
    whole = gzip.decompress(base64.b64decode(text))
    end = 4 + int.from_bytes(whole[:4], "little")
    head = json.loads(whole[4:end])
    arrays = {}
    for name, kind, count in head["arrays"]:
        assert end % 4 == 0
        arrays[name] = np.frombuffer(whole, f"<{kind}", count, end)
        end += -(-arrays[name].nbytes // 4) * 4
    assert end == len(whole)
    return head, arrays


def test_the_page_holds_what_it_was_given() -> None:
    given = page()
    head, arrays = unpacked(given.html())
    assert head["paths"] == given.paths
    assert (arrays["neighbors"].reshape(N, head["k"]) == given.neighbors).all()
    assert (arrays["ids0"] == given.colorings[0].ids).all()
    assert head["sections"]["outliers"] == [
        {"title": "plain", "rows": [3, 1], "captions": ["plain", "c"]}
    ]
    assert (head["tasks"], head["predicted"]) == ([0], 1)
    assert (np.stack([arrays["width"], arrays["height"]], axis=1) == given.sizes).all()
    drawn = np.stack([arrays["x"], arrays["y"]], axis=1) / 65535
    moved = given.points - given.points.min(0)
    assert drawn == pytest.approx(moved / moved.max(), abs=1e-4)


def test_hostile_names_stay_text() -> None:
    html = page(HOSTILE).html()
    plain = page().html()
    assert HOSTILE not in html
    assert "<img" not in html
    assert html.count("<script") == plain.count("<script")
    assert unpacked(html)[0]["paths"][0] == f"{HOSTILE}/0"


def test_names_that_are_no_text_are_shown() -> None:
    head, _ = unpacked(page("a\udcff").html())
    assert head["paths"][0] == "a\\udcff/0"


def test_only_the_pages_own_script_may_run() -> None:
    html = page().html()
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy.startswith("default-src 'none'; img-src data:")
    assert f"script-src 'sha256-{digest}'" in policy
    assert not re.search(r"https?://|innerHTML|insertAdjacent|document\.write|eval\(", html)


def test_every_control_has_a_name() -> None:
    html = page().html()
    assert 'role="application" aria-label="Map of 50 images' in html
    assert '<p id="said" aria-live="polite">' in html
    assert '<span id="tally" aria-live="polite">' in html
    assert 'role="region" aria-label="Decide on' in html
    assert len(re.findall("<label[ >]", html)) == len(re.findall(r"<select|<input", html)) == 5
    for button in re.findall(r"<button[^>]*>(.*?)</button>", html):
        assert button.strip()
    for link in re.findall(r'href="#([^"]*)"', html):
        assert f'id="{link}"' in html


def test_the_keyboard_reaches_the_labels_in_the_order_of_the_page() -> None:
    """Every control is a native one or the map, none is skipped, and labels follow the images."""
    html = page().html()
    body = html[html.index("<main") : html.index('<script type="text/plain"')]
    assert set(re.findall(r'<(\w+)[^>]*tabindex="(-?\d+)"', body)) == {
        ("canvas", "0"),
        ("h2", "-1"),
    }
    places = [body.index(f'id="{name}"') for name in ("map", "outliers", "found", "keep", "save")]
    assert places == sorted(places)
    keys = dict(re.findall(r'id="(\w+)"[^>]*aria-keyshortcuts="(\w)"', body))
    assert keys == {
        "lasso": "l",
        "keep": "k",
        "exclude": "x",
        "accept": "a",
        "undo": "u",
        "save": "s",
    }
    script = html[html.rindex("<script>") :]
    assert 'createElement("button")' in script
    assert not re.findall(r"(?:div|span)\.(?:onclick|addEventListener)", script)
    assert '"; decided: "' in script  # a screen reader hears the decision with the name


def test_small_text_is_readable() -> None:
    """Nothing is smaller than 12 pixels, but for keys, which are beside their names."""
    (style,) = re.findall(r"<style>(.*?)</style>", page().html(), re.DOTALL)
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)rem", style)]
    assert min(sizes) >= 0.75


def test_a_page_without_a_map_has_the_rest() -> None:
    html = replace(page(), points=None, neighbors=None).html()
    head, arrays = unpacked(html)
    assert head["k"] == len(arrays["neighbors"]) == 0
    assert arrays.keys() == {"neighbors", "width", "height", "ids0", "ids1"}
    assert 'id="map"' not in html
    assert 'id="lasso"' not in html
    assert 'id="save"' in html


def test_every_element_that_the_script_needs_is_there() -> None:
    html = page().html()
    script = html[html.rindex("<script>") :]
    for name in set(re.findall(r'byId\("([^"]+)"\)', script)):
        assert html.count(f'id="{name}"') == 1, name


def tiles(drawn: Any) -> list[np.ndarray]:
    cut = []
    for sheet in drawn.sheets:
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheet))))
        for top in range(0, picture.shape[0], drawn.height):
            for left in range(0, picture.shape[1], drawn.width):
                cut.append(picture[top : top + drawn.height, left : left + drawn.width])
    return cut


def looks_like(cut: list[np.ndarray], images: np.ndarray) -> list[int]:
    """Return the image that each tile is most like: a lossy file keeps no more than that."""
    shown = images[..., :3] if images.shape[-1] >= 3 else images[..., :1]
    return [int(np.abs(tile - shown.astype(float)).mean((1, 2, 3)).argmin()) for tile in cut]


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_tiles_show_their_images(channels: int) -> None:
    images = pictures(30, channels=channels)
    order = [7, 3, 29, *range(20)]
    drawn = atlas(images, order, budget=10**6)
    assert (drawn.width, drawn.height) == (16, 16)
    assert looks_like(tiles(drawn), images)[: len(order)] == order


def test_tiles_fill_several_sheets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widefield.report.atlas._SHEET", 64)
    images = pictures(40)
    drawn = atlas(images, range(40), budget=10**6)
    assert (drawn.columns, drawn.rows, len(drawn.sheets)) == (4, 4, 3)
    assert looks_like(tiles(drawn), images)[:40] == list(range(40))


def test_a_page_has_room_for_no_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of noise, which does not compress: less room, smaller tiles; copies in groups are larger."""
    noise = np.random.default_rng(0).integers(0, 256, (200, 32, 48, 3), dtype=np.uint8)
    widths = []
    for limit in (1_000_000, 250_000, 170_000):
        monkeypatch.setattr(explore, "MAX_PAGE_BYTES", limit)
        html = page(images=noise).html()
        assert len(html.encode()) <= limit
        shapes = re.findall(r'data-atlas="(\d)" data-shape="(\d+)', html)
        widths.append([int(width) for _, width in shapes])
    assert widths[0] == [48]
    assert [len(row) for row in widths] == [1, 2, 2]
    assert widths[0][0] > widths[1][0] > widths[2][0]
    assert widths[2][1] > widths[2][0]
