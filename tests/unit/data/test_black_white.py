"""Images of more than 8 bits: the values that are read, and the black and white of a data set."""

import json
import struct
import zlib
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from made_images import GRAY_ALPHA, RGB, RGBA, png16, saved, tiff
from widefield.data import open_dataset
from widefield.data.decode import black_white as rule
from widefield.data.decode.black_white import find_black_white
from widefield.encoders import build_encoder
from widefield.encoders.weights.files import read_config

SIDE = 24
RAMP = np.linspace(0, 1, 64).reshape(8, 8)
COLORS = np.stack([RAMP, RAMP[::-1], RAMP.T], axis=-1)


def contents(count=4):
    """Pictures [n, H, W] in [0, 1]: smooth, with all of the range in each."""
    u, v = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    return np.stack([(u * (i + 1) + 2 * v) % 31 / 30 for i in range(count)])


def write(folder, *files):
    folder.mkdir(exist_ok=True)
    for i, content in enumerate(files):
        png, pgm = content[:4] == b"\x89PNG", content[:2] == b"P5"
        suffix = ".png" if png else ".pgm" if pgm else ".tif" if content[:2] == b"II" else ".jp2"
        (folder / f"{i:03d}{suffix}").write_bytes(content)
    return folder


def opened(folder, *files, **options):
    return open_dataset(write(folder, *files), **options)


def shown(values, white):
    return np.round(np.asarray(values, dtype=float) * 255 / white)


def pgm(values):
    height, width = values.shape
    return f"P5\n{width} {height}\n65535\n".encode() + values.astype(">u2").tobytes()


def jpeg2000(values):
    return saved(values.astype(np.uint16), "JPEG2000", irreversible=False)


def tiff_of(dtype, kind):
    def write_values(values):
        values = values.astype(dtype)
        return tiff(values, bits=8 * values.itemsize, kind=kind)

    return write_values


# What is read, between a given black and white


@pytest.mark.parametrize("bits", range(8, 17))
@pytest.mark.parametrize("form", ["png", "tiff", "color tiff", "deflated"])
def test_values_of_any_depth_are_read(tmp_path, bits, form):
    white = 2**bits - 1
    values = np.round((COLORS if form in ("color tiff", "deflated") else RAMP) * white)
    content = png16(values) if form == "png" else tiff(values.astype("<u2"), bits=16)
    if values.ndim == 3:
        content = tiff(values.astype("<u2"), bits=16, photometric=2)
    if form == "deflated":
        content = deflated(content, values.astype("<u2").tobytes())
    dataset = opened(tmp_path, content, black_white=(0, white))
    assert (dataset.images[0] == shown(values, white).reshape(8, 8, -1)).all()


def deflated(content, data):
    """Return the TIFF with its pixels compressed."""
    packed = zlib.compress(data)
    entry = struct.Struct("<HHII")
    content = content.replace(entry.pack(259, 4, 1, 1), entry.pack(259, 4, 1, 8))
    content = content.replace(entry.pack(279, 4, 1, len(data)), entry.pack(279, 4, 1, len(packed)))
    return content[: -len(data)] + packed


@pytest.mark.parametrize(("dtype", "kind"), [("<u4", 1), ("<i4", 2), ("<i2", 2), ("<f4", 3)])
@pytest.mark.parametrize("white", [255, 1023, 32_767])
def test_wide_values_of_few_bits_are_read(tmp_path, dtype, kind, white):
    values = np.round(RAMP * white).astype(dtype)
    dataset = opened(tmp_path, tiff_of(dtype, kind)(values), black_white=(0, white))
    assert (dataset.images[0, ..., 0] == shown(values, white)).all()


def test_tiffs_where_zero_is_white(tmp_path):
    values = np.round(RAMP * 4095).astype("<u2")
    dataset = opened(tmp_path, tiff(values, bits=16, photometric=0), black_white=(0, 4095))
    assert (dataset.images[0, ..., 0] == shown(4095 - values.astype(int), 4095)).all()


def test_twelve_bits_packed_are_what_the_file_says(tmp_path):
    values = np.arange(64).reshape(8, 8) * 15  # never above 945: the file alone says 4095
    pairs = values.reshape(-1, 2)
    packed = np.stack(
        [pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=1
    )
    content = tiff(np.zeros((8, 8), np.uint8), bits=12)[:-64] + packed.astype(np.uint8).tobytes()
    lengths = [struct.pack("<HHII", 279, 4, 1, length) for length in (64, 96)]
    dataset = opened(tmp_path, content.replace(*lengths))
    assert (dataset.images[0, ..., 0] == shown(values, 4095)).all()


def test_formats_that_say_their_range_keep_it(tmp_path):
    values = np.round(RAMP * 900).astype(int)
    dataset = opened(tmp_path, b"P5 8 8 4095\n" + values.astype(">u2").tobytes())
    assert np.abs(dataset.images[0, ..., 0] - shown(values, 4095)).max() <= 1


@pytest.mark.parametrize("kind", [GRAY_ALPHA, RGBA])
def test_deep_png_with_opacity_shows_white(tmp_path, kind):
    colors = np.repeat((RAMP * 60_000).round()[..., None], 1 if kind == GRAY_ALPHA else 3, axis=-1)
    alpha = RAMP.T
    content = png16(np.dstack([colors, np.round(alpha * 65_535)]), kind)
    dataset = opened(tmp_path, content, black_white=(0, 65_535))
    expected = colors / 65_535 * alpha[..., None] + 1 - alpha[..., None]
    assert np.abs(dataset.images[0] - expected * 255).max() <= 1.5
    assert any("transparent" in note for note in dataset.notes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tiff_of("<f4", 3)(np.where(RAMP > 0.5, np.nan, 0)), "not finite"),
        (tiff_of("<i1", 2)(RAMP * 9), "signed values of 8 bits"),
        (
            tiff(np.zeros((3, 8, 8), "<u2"), bits=16, photometric=2, planar=2),
            "16 bits in RGB, in separate planes",
        ),
    ],
)
def test_values_that_mean_no_brightness_are_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, content)


def test_masks_of_zero_and_one_are_said_to_be_black(tmp_path):
    Image.fromarray((RAMP > 0.5).astype(np.uint8)).save(tmp_path / "mask.png")
    assert any("masks of 0 and 1" in note for note in open_dataset(tmp_path).notes)
    mask = (RAMP > 0.5).astype(np.uint8)[None, ..., None]
    assert any("masks of 0 and 1" in note for note in open_dataset(mask).notes)
    assert not any("masks" in note for note in open_dataset(mask * 2).notes)


# The rule

KINDS = {
    "12 bits in 16": (png16, 0, 4095),
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
    "fractions": (tiff_of("<f4", 3), 0, 1),
    "HU in int16": (tiff_of("<i2", 2), -1000, 4000),
    "HU in int32": (tiff_of("<i4", 2), -1024, 3000),
    "differences": (tiff_of("<f4", 3), -0.4, 1.1),
}


@pytest.mark.parametrize("name", KINDS)
def test_whatever_part_of_the_range_is_used_becomes_all_levels(tmp_path, name):
    write_file, low, span = KINDS[name]
    pictures = contents()
    values = low + span * pictures
    dataset = opened(tmp_path, *map(write_file, values if span < 100 else np.round(values)))
    assert len(np.unique(dataset.images)) == 31
    assert np.abs(dataset.images[..., 0] - 255 * pictures).max() <= 1
    black, white = dataset.black_white
    assert (black, white) == pytest.approx((low, low + span), rel=1e-6)
    line = f"4 of 4 images have more than 8 bits: values from {black:.7g} to {white:.7g} became"
    assert any(note.startswith(line) and "from 4 files" in note for note in dataset.notes)


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
    dataset = opened(tmp_path, *map(png16, values))
    assert dataset.black_white == pytest.approx((31_768, 33_808), abs=1)
    same = values == plain
    off = np.abs(dataset.images[..., 0] - (plain - 31_768) / 8)[same]
    assert off.max() <= 1
    assert (dataset.images[..., 0][values == 0] == 0).all()
    assert (dataset.images[..., 0][values == 65_535] == 255).all()


def test_one_dark_image_among_bright_ones_is_no_outlier(tmp_path):
    bright = np.round(40_000 + 20_000 * contents(12))
    dark = np.round(300 * contents(1))
    dataset = opened(tmp_path, *map(png16, [*dark, *bright]))
    assert dataset.black_white == pytest.approx((0, 60_000), abs=100)
    assert len(np.unique(dataset.images[0])) > 1


def test_color_and_opacity(tmp_path):
    u = contents(3)
    colors = np.round(40_000 + 1000 * np.stack([u[0], u[1], u[2]], axis=-1))
    hot = colors.copy()
    hot[4, 4] = 65_535
    found = opened(tmp_path / "rgb", png16(colors, RGB), png16(hot, RGB))
    assert found.black_white == (40_000, 41_000)
    assert np.abs(found.images[0] - (colors - 40_000) * 0.255).max() <= 0.51
    clear = np.dstack([colors, np.where(u[0] > 0.2, 65_535, 0)])
    clear[clear[..., 3] == 0] = 0  # what is transparent has no value
    found = opened(tmp_path / "rgba", png16(clear, RGBA))
    assert found.black_white == (40_000, 41_000)


def test_constant_images(tmp_path):
    flat = [np.full((SIDE, SIDE), value) for value in (32_000, 33_000, 34_000)]
    several = opened(tmp_path / "several", *map(png16, flat))
    assert several.images[:, 0, 0, 0].tolist() == [0, 128, 255]
    ramp = np.round(31_768 + 2040 * contents(2))
    among = opened(tmp_path / "among", png16(flat[1]), *map(png16, ramp))
    assert among.black_white == (31_768, 33_808)
    one = opened(tmp_path / "one", png16(flat[0]))
    assert one.black_white == (32_000, 32_001)


def test_images_of_8_bits_keep_their_values_among_deep_ones(tmp_path):
    bright = np.round(255 * contents(2)).astype(np.uint8)
    write(tmp_path, *map(png16, np.round(51_000 + 1020 * contents(2))))
    for i, image in enumerate(bright):
        Image.fromarray(image).save(tmp_path / f"x{i}.png")
    dataset = open_dataset(tmp_path)
    assert (dataset.images[2:, ..., 0] == bright).all()
    assert dataset.black_white == (51_000, 52_020)
    assert any(note.startswith("2 of 4 images have more than 8 bits") for note in dataset.notes)


def test_fractions_among_integers_have_no_common_scale(tmp_path):
    unit, integers = contents(1)[0].astype("<f4"), np.round(4000 * contents(1)[0])
    with pytest.raises(ValueError, match=r"000.tif is floats in \[0, 1\], and 001.png integers"):
        opened(tmp_path, tiff_of("<f4", 3)(unit), png16(integers))


def test_few_levels_and_two_groups_are_no_outliers():
    """A dim and a bright class, and label images, keep all of their levels."""
    dim, bright = np.round(1000 * contents(2)[0]), np.round(60_000 + 1000 * contents(2)[1])
    ids = np.array([0, 1000, 65_000] * 3)
    assert find_black_white([dim.ravel(), bright.ravel()]) == (0, 61_000)
    assert find_black_white([ids]) == pytest.approx((0, 65_000), abs=20)


def test_black_and_white_come_from_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(rule, "_SAMPLE_FILES", 8)
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
    assert any("% of them are outside: pretrain" in note for note in near.notes)
    for bad in ((5, 5), (9, 3), (0, float("nan")), (1,), 4095):
        with pytest.raises(ValueError, match=r"black_white is .*black < white"):
            open_dataset(tmp_path, black_white=bad)


@given(
    st.integers(-(2**20), 2**31), st.integers(1, 2**20), st.sampled_from(["<i8", "<f8"]), st.data()
)
def test_the_range_has_all_values_but_outliers(low, span, dtype, data):
    values = np.round(low + span * contents(3)).astype(dtype)
    hot = data.draw(st.sampled_from([None, 2**40, -(2**40)]))
    if hot is not None:
        values[1, 2, 2] = hot
    black, white = find_black_white([image.ravel() for image in values])
    assert black <= low + span / 15
    assert white >= low + span - span / 15
    assert white - black <= 1.001 * span + 1


# Runs and encoders


@pytest.mark.parametrize("value", [[5, 5], [9, 3], [1], "x", 7, [0, None], [0, 1e999]])
def test_a_header_with_another_black_and_white_is_refused(tmp_path, value):
    config = json.loads(json.dumps(asdict(build_encoder("resnet-tiny", seed=0).config)))
    assert read_config(json.dumps(config | {"black_white": [5, 9.5]})).black_white == (5, 9.5)
    with pytest.raises(ValueError, match="black_white is"):
        read_config(json.dumps(config | {"black_white": value}))
