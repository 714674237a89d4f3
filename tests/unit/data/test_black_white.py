"""Black and white of deep images whose values are a small part of their range.

The control is the former rule: black is 0, and white the largest value of the bits in use.
"""

import io
import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from made_images import RGB, RGBA, png16, tiff
from widefield.data import open_dataset
from widefield.data.decode import images as decode_images
from widefield.data.decode.high_bit_depth import Deep, find_black_white
from widefield.encoders import build_encoder
from widefield.encoders.weights.files import read_config

SIDE = 24


def contents(count=4):
    """Pictures [n, H, W] in [0, 1]: smooth, with all of the range in each."""
    u, v = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    return np.stack([(u * (i + 1) + 2 * v) % 31 / 30 for i in range(count)])


def write(folder, *files, first=0):
    folder.mkdir(exist_ok=True)
    for i, content in enumerate(files, start=first):
        png, pgm = content[:4] == b"\x89PNG", content[:2] == b"P5"
        suffix = ".png" if png else ".pgm" if pgm else ".tif" if content[:2] == b"II" else ".jp2"
        (folder / f"{i:03d}{suffix}").write_bytes(content)
    return folder


def levels_before(values):
    """Levels of gray by the former rule, of values that it accepted."""
    white = max(255, 2 ** int(np.max(values)).bit_length() - 1)
    return len(np.unique(np.round(np.asarray(values) * 255.0 / white)))


def pgm(values):
    height, width = values.shape
    return f"P5\n{width} {height}\n65535\n".encode() + values.astype(">u2").tobytes()


def jpeg2000(values):
    buffer = io.BytesIO()
    Image.fromarray(values.astype(np.uint16)).save(buffer, "JPEG2000", irreversible=False)
    return buffer.getvalue()


def tiff_of(dtype, kind):
    def write(values):
        values = values.astype(dtype)
        return tiff(values, bits=8 * values.itemsize, kind=kind)

    return write


NARROW = {
    "CT + 32768": (png16, 31_768, 2040),
    "thermal": (png16, 51_000, 1020),
    "TIFF of 16 bits": (tiff_of("<u2", 1), 40_000, 600),
    "int32": (tiff_of("<i4", 2), 60_000, 3_000),
    "uint32 above 2^31": (tiff_of("<u4", 1), 3_000_000_000, 4_000),
    "PGM": (pgm, 51_000, 1020),
    "JPEG 2000": (jpeg2000, 51_000, 1020),
    "whole floats": (tiff_of("<f4", 3), 30_000, 700),
    "degrees Celsius": (tiff_of("<f4", 3), 20, 18),
    "Kelvin": (tiff_of("<f4", 3), 293, 17),
}


@pytest.mark.parametrize("name", NARROW)
def test_a_small_part_of_the_range_becomes_all_levels(tmp_path, name):
    write_file, low, span = NARROW[name]
    pictures = contents()
    values = low + span * pictures
    values = values if name in ("degrees Celsius", "Kelvin") else np.round(values)
    dataset = open_dataset(write(tmp_path, *map(write_file, values)))
    assert levels_before(values) <= 20
    assert len(np.unique(dataset.images)) == 31
    assert np.abs(dataset.images[..., 0] - 255 * pictures).max() <= 1
    black, white = dataset.black_white
    assert (black, white) == pytest.approx((low, low + span), rel=1e-6)
    line = f"4 of 4 images have more than 8 bits: values from {black:.7g} to {white:.7g} became"
    assert any(note.startswith(line) and "from 4 files" in note for note in dataset.notes)


NEGATIVE = {
    "HU in int16": (tiff_of("<i2", 2), -1000, 4000),
    "HU in int32": (tiff_of("<i4", 2), -1024, 3000),
    "frost": (tiff_of("<f4", 3), -30, 25),
    "differences": (tiff_of("<f4", 3), -0.4, 1.1),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_values_below_zero_are_read(tmp_path, name):
    """They were refused."""
    write_file, low, span = NEGATIVE[name]
    pictures = contents()
    dataset = open_dataset(write(tmp_path, *map(write_file, low + span * pictures)))
    assert np.abs(dataset.images[..., 0] - 255 * pictures).max() <= 1


OUTLIERS = {
    "one hot pixel": lambda v, i: v.flat.__setitem__(5, 65_535 if i == 1 else v.flat[5]),
    "the same hot pixel in all": lambda v, i: v.flat.__setitem__(5, 65_535),
    "one dead pixel": lambda v, i: v.flat.__setitem__(7, 0 if i == 2 else v.flat[7]),
    "hot and dead": lambda v, i: v.flat.__setitem__([3, 9], [0, 65_535]),
    "padding of 0": lambda v, i: v.__setitem__(slice(0, 6), 0),
    "marks of 65535": lambda v, i: v.__setitem__((slice(0, 2), slice(0, 5)), 65_535),
}


@pytest.mark.parametrize("files", [1, 2, 6])
@pytest.mark.parametrize("name", OUTLIERS)
def test_outliers_do_not_decide(tmp_path, name, files):
    plain = np.round(31_768 + 2040 * contents(files))
    values = plain.copy()
    for i, image in enumerate(values):
        OUTLIERS[name](image, i)
    dataset = open_dataset(write(tmp_path, *map(png16, values)))
    assert dataset.black_white == pytest.approx((31_768, 33_808), abs=140)
    same = values == plain
    off = np.abs(dataset.images[..., 0] - (plain - 31_768) / 8)[same]
    assert off.max() <= 17
    if "dead" not in name and "padding" not in name:
        assert levels_before(values) <= 10
    assert (dataset.images[..., 0][values == 0] == 0).all()
    assert (dataset.images[..., 0][values == 65_535] == 255).all()


def test_a_hot_pixel_changes_nothing_where_the_bits_are_in_use(tmp_path):
    values = np.round(200 + 1530 * contents(6))
    plain = open_dataset(write(tmp_path / "plain", *map(png16, values)))
    values[2, 3, 3] = 65_535
    hot = open_dataset(write(tmp_path / "hot", *map(png16, values)))
    assert plain.black_white == hot.black_white == (0, 2047)
    assert levels_before(values) <= 31 / 3
    other = values != 65_535
    assert (hot.images[other] == plain.images[other]).all()


def test_color_and_opacity(tmp_path):
    u = contents(3)
    colors = np.round(40_000 + 1000 * np.stack([u[0], u[1], u[2]], axis=-1))
    hot = colors.copy()
    hot[4, 4] = 65_535
    found = open_dataset(write(tmp_path / "rgb", png16(colors, RGB), png16(hot, RGB)))
    assert found.black_white == (40_000, 41_000)
    assert np.abs(found.images[0] - (colors - 40_000) * 0.255).max() <= 0.51
    clear = np.dstack([colors, np.where(u[0] > 0.2, 65_535, 0)])
    clear[clear[..., 3] == 0] = 0  # what is transparent has no value
    found = open_dataset(write(tmp_path / "rgba", png16(clear, RGBA)))
    assert found.black_white == (40_000, 41_000)


def test_constant_images(tmp_path):
    flat = [np.full((SIDE, SIDE), value) for value in (32_000, 33_000, 34_000)]
    several = open_dataset(write(tmp_path / "several", *map(png16, flat)))
    assert several.images[:, 0, 0, 0].tolist() == [0, 128, 255]
    ramp = np.round(31_768 + 2040 * contents(2))
    among = open_dataset(write(tmp_path / "among", png16(flat[1]), *map(png16, ramp)))
    assert among.black_white == (31_768, 33_808)
    one = open_dataset(write(tmp_path / "one", png16(flat[0])))
    assert one.black_white == (0, 32_767)
    below = open_dataset(write(tmp_path / "below", tiff_of("<i2", 2)(flat[0] * 0 - 9)))
    assert below.black_white == (-9, -8)


def test_images_of_8_bits_keep_their_values_among_deep_ones(tmp_path):
    bright = np.round(255 * contents(2)).astype(np.uint8)
    deep = np.round(51_000 + 1020 * contents(2))
    write(tmp_path, *map(png16, deep))
    for i, image in enumerate(bright):
        Image.fromarray(image).save(tmp_path / f"x{i}.png")
    dataset = open_dataset(tmp_path)
    assert (dataset.images[2:, ..., 0] == bright).all()
    assert dataset.black_white == (51_000, 52_020)
    assert any(note.startswith("2 of 4 images have more than 8 bits") for note in dataset.notes)


def test_fractions_among_integers_have_no_common_scale(tmp_path):
    unit, integers = contents(1)[0].astype("<f4"), np.round(4000 * contents(1)[0])
    write(tmp_path, tiff_of("<f4", 3)(unit), png16(integers))
    with pytest.raises(ValueError, match=r"floats in \[0, 1\], and others integers up to 4000"):
        open_dataset(tmp_path)


def test_zero_may_be_white(tmp_path):
    pictures = contents()
    values = np.round(30_000 + 2000 * pictures).astype("<u2")
    files = [tiff(image, bits=16, photometric=0) for image in values]
    dataset = open_dataset(write(tmp_path, *files))
    assert np.abs(dataset.images[..., 0] - 255 * (1 - pictures)).max() <= 1


def test_few_levels_and_two_groups_are_no_outliers():
    """A dim and a bright class, and label images, keep all of their levels."""
    dim, bright = 1000 * contents(2)[0], 60_000 + 1000 * contents(2)[1]
    ids = np.array([[0, 1000, 65_000]] * 3)
    for images in ([dim, bright], [ids]):
        black, white = find_black_white([Deep(np.round(x).astype(int)).sample() for x in images])
        assert (black, white) == (0, 65_535)


def test_black_and_white_come_from_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(decode_images, "_RANGE_FILES", 8)
    values = np.round(51_000 + 1020 * contents(40))
    write(tmp_path, *map(png16, values))
    (tmp_path / "bad.png").write_bytes(png16(values[0])[:90])
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 40
    assert dataset.black_white == (51_000, 52_020)
    assert any("from 8 files" in note or "from 7 files" in note for note in dataset.notes)


def test_all_deep_files_damaged(tmp_path):
    for i in range(40):
        Image.new("L", (8, 8), i).save(tmp_path / f"{i:02d}.png")
    (tmp_path / "a.png").write_bytes(png16(np.ones((8, 8)))[:45])
    assert len(open_dataset(tmp_path)) == 40


def test_values_outside_a_given_range_are_counted_or_refused(tmp_path):
    values = np.round(31_768 + 2040 * contents())
    write(tmp_path, *map(png16, values))
    with pytest.raises(ValueError, match="values of 4 images are outside 0 to 4095"):
        open_dataset(tmp_path, black_white=(0, 4095))
    near = open_dataset(tmp_path, black_white=(31_968, 33_808))
    assert any(note.endswith("% of them are outside") for note in near.notes)
    for bad in ((5, 5), (9, 3), (0, float("nan")), (1,), 4095):
        with pytest.raises(ValueError, match=r"black_white is .*black < white"):
            open_dataset(tmp_path, black_white=bad)


@given(
    st.integers(-(2**20), 2**31), st.integers(1, 2**20), st.sampled_from(["<i8", "<f8"]), st.data()
)
def test_the_range_has_all_values_but_outliers(low, span, dtype, data):
    pictures = contents(3)
    values = np.round(low + span * pictures).astype(dtype)
    hot = data.draw(st.sampled_from([None, 2**40, -(2**40)]))
    if hot is not None:
        values[1, 2, 2] = hot
    black, white = find_black_white([Deep(image).sample() for image in values])
    assert black <= low + span / 15
    assert white >= low + span - span / 15
    narrow = white - black <= 1.001 * span + 1
    in_use = black == 0 and (white <= 255 or span >= white / 2 - 1 or low < 0)
    assert narrow or in_use


@pytest.mark.parametrize("value", [[5, 5], [9, 3], [1], "x", 7, [0, None], [0, 1e999]])
def test_a_header_with_another_black_and_white_is_refused(tmp_path, value):
    config = json.loads(json.dumps(asdict(build_encoder("resnet-tiny", seed=0).config)))
    assert read_config(json.dumps(config | {"black_white": [5, 9.5]})).black_white == (5, 9.5)
    with pytest.raises(ValueError, match="black_white is"):
        read_config(json.dumps(config | {"black_white": value}))
