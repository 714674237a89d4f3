import base64
import io
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from widefield.report.figures import chart, png, thumbnail
from widefield.report.parts import Lines

SVG = "{http://www.w3.org/2000/svg}"


def drawn(x: list[float], y: list[float], x_label: str = "x", **options: Any) -> str:
    lines = Lines(title="", caption="", series={"curve": (x, y)}, x_label=x_label, **options)
    return chart(lines, prefix="a-")


def test_a_chart_takes_its_colors_and_type_from_the_page() -> None:
    svg = drawn([1, 2, 3], [3.0, 1.0, 2.0], x_label="epoch")
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert "width" not in root.attrib
    assert "viewBox" in root.attrib
    colors = set(re.findall(r"(?:stroke|fill): ([^;\"]+)", svg))
    assert colors <= {"currentColor", "var(--accent)", "none"}
    assert "var(--accent)" in colors
    assert "epoch" in [text.text for text in root.iter(f"{SVG}text")]


def test_the_line_goes_through_the_points() -> None:
    many = np.linspace(0, 3, 31)
    svg = drawn(many.tolist(), (many**2).tolist())
    (path,) = [
        node.attrib["d"]
        for node in ElementTree.fromstring(svg).iter(f"{SVG}path")
        if "--accent" in node.attrib.get("style", "")
    ]
    points = np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", path), dtype=float)
    x, y = points.T
    np.testing.assert_allclose((x - x[0]) / (x[-1] - x[0]), many / 3, atol=1e-3)
    np.testing.assert_allclose((y - y[0]) / (y[-1] - y[0]), (many / 3) ** 2, atol=1e-3)


def test_a_single_point_has_one_mark_below_it() -> None:
    svg = drawn([2], [40.0], y_range=(0, None))
    words = [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert words.count("2") == 1
    assert not [word for word in words if word.startswith(("1.", "2."))]


def test_an_axis_from_zero_shows_the_zero() -> None:
    def ticks(y_range: tuple[float, None] | None) -> list[str]:
        svg = drawn([1, 2], [400.0, 440.0], y_range=y_range)
        return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]

    assert "0" in ticks((0, None))
    assert "0" not in ticks(None)


def test_labels_are_not_read_as_mathematics_or_markup() -> None:
    svg = drawn([1, 2], [1.0, 2.0], x_label="$\\frac{$ <b>")
    assert "$\\frac{$ &lt;b&gt;" in svg


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((32, 32, 3), (32, 32, 3)),
        ((32, 32, 4), (32, 32, 3)),
        ((28, 20, 1), (28, 20)),
        ((28, 20, 2), (28, 20)),
        ((400, 200, 3), (96, 48, 3)),
    ],
)
def test_thumbnails_fit_and_small_ones_are_untouched(
    shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    small = thumbnail(image)
    assert small.shape == expected
    if max(shape) <= 96:
        np.testing.assert_array_equal(small, image[..., :3] if shape[2] >= 3 else image[..., 0])


@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 7, 1)])
def test_a_png_holds_the_image_bit_for_bit(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    back = np.asarray(Image.open(io.BytesIO(base64.b64decode(png(image)))))
    np.testing.assert_array_equal(back.reshape(shape), image)
