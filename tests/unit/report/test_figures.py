import base64
import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from widefield.report.figures import image_uri, line_chart, thumbnail

SVG = "{http://www.w3.org/2000/svg}"


def test_a_chart_takes_its_colours_and_type_from_the_page() -> None:
    chart = line_chart([1, 2, 3], [3.0, 1.0, 2.0], "epoch", False, "a-")
    root = ElementTree.fromstring(chart)
    assert root.tag == f"{SVG}svg"
    assert "width" not in root.attrib
    assert "viewBox" in root.attrib
    colours = set(re.findall(r"(?:stroke|fill): ([^;\"]+)", chart))
    assert colours <= {"currentColor", "var(--accent)", "none"}
    assert chart.count("var(--accent)") == 1
    assert "epoch" in [text.text for text in root.iter(f"{SVG}text")]


def test_the_line_goes_through_the_points() -> None:
    chart = line_chart([0, 1, 2, 3], [0.0, 1.0, 4.0, 9.0], "x", False, "a-")
    (path,) = [
        node.attrib["d"]
        for node in ElementTree.fromstring(chart).iter(f"{SVG}path")
        if "--accent" in node.attrib.get("style", "")
    ]
    points = np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", path), dtype=float)
    x, y = points.T
    np.testing.assert_allclose((x - x[0]) / (x[-1] - x[0]), np.arange(4) / 3, atol=1e-3)
    np.testing.assert_allclose((y - y[0]) / (y[-1] - y[0]), np.arange(4) ** 2 / 9, atol=1e-3)


def test_from_zero_shows_the_zero() -> None:
    def ticks(from_zero: bool) -> list[str]:
        chart = line_chart([1, 2], [400.0, 440.0], "x", from_zero, "a-")
        return [node.text or "" for node in ElementTree.fromstring(chart).iter(f"{SVG}text")]

    assert "0" in ticks(True)
    assert "0" not in ticks(False)


def test_labels_are_not_read_as_mathematics_or_markup() -> None:
    chart = line_chart([1, 2], [1.0, 2.0], "$\\frac{$ <b>", False, "a-")
    assert "$\\frac{$ &lt;b&gt;" in chart


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


@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 7)])
def test_a_data_uri_holds_the_image_bit_for_bit(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    head, body = image_uri(image).split(",")
    assert head == "data:image/png;base64"
    back = np.asarray(Image.open(io.BytesIO(base64.b64decode(body))))
    np.testing.assert_array_equal(back, image)
