"""Images of more than 8 bits, compared with the values that were written."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from made_images import GRAY_ALPHA, RGB, RGBA, png16, tiff
from widefield.data import open_dataset
from widefield.data.decode.high_bit_depth import ValueSample, find_black_white

RAMP = np.linspace(0, 1, 64).reshape(8, 8)


def opened(tmp_path, *files, **options):
    for i, content in enumerate(files):
        suffix = ".png" if content[:4] == b"\x89PNG" else ".tif"
        (tmp_path / f"{i}{suffix}").write_bytes(content)
    return open_dataset(tmp_path, **options)


def shown(values, max_value):
    return np.round(np.asarray(values, dtype=float) * 255 / max_value)


@pytest.mark.parametrize("bits", range(8, 17))
@pytest.mark.parametrize("container", ["png", "tiff"])
def test_white_is_the_largest_value_of_the_bits_in_use(tmp_path, bits, container):
    values = np.round(RAMP * (2**bits - 1)).astype("<u2")
    content = png16(values) if container == "png" else tiff(values, bits=16)
    dataset = opened(tmp_path, content)
    assert dataset.black_white == (0, 2**bits - 1)
    assert (dataset.images[0, ..., 0] == shown(values, 2**bits - 1)).all()
    assert len(np.unique(dataset.images)) == 64
    assert any(f"values from 0 to {2**bits - 1} became 0 to 255" in n for n in dataset.notes)


def test_white_is_one_for_a_data_set_whatever_an_image_holds(tmp_path):
    bright, dim = np.round(RAMP * 4000).astype("<u2"), np.round(RAMP * 200).astype("<u2")
    dataset = opened(tmp_path, png16(bright), png16(dim))
    assert (dataset.images[1, ..., 0] == shown(dim, 4095)).all()
    later = open_dataset(tmp_path, max_examples=1, black_white=(0, 16383))
    assert (later.images[0, ..., 0] == shown(bright, 16383)).all()


def test_values_above_the_white_of_a_run_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"72% of the values of 1 images are outside 0 to 1023"):
        opened(tmp_path, png16(np.round(RAMP * 4000)), black_white=(0, 1023))


def test_tiffs_where_zero_is_white(tmp_path):
    values = np.round(RAMP * 4095).astype("<u2")
    dataset = opened(tmp_path, tiff(values, bits=16, photometric=0))
    assert (dataset.images[0, ..., 0] == shown(4095 - values.astype(int), 4095)).all()


def test_twelve_bits_packed_are_what_the_file_says(tmp_path):
    values = np.arange(64).reshape(8, 8) * 15  # never above 945: the file alone says 4095
    pairs = values.reshape(-1, 2)
    packed = np.stack(
        [pairs[:, 0] >> 4, (pairs[:, 0] & 15) << 4 | pairs[:, 1] >> 8, pairs[:, 1] & 255], axis=1
    )
    content = tiff(np.zeros((8, 8), np.uint8), bits=12)[:-64] + packed.astype(np.uint8).tobytes()
    dataset = opened(
        tmp_path,
        content.replace(struct.pack("<HHII", 279, 4, 1, 64), struct.pack("<HHII", 279, 4, 1, 96)),
    )
    assert (dataset.images[0, ..., 0] == shown(values, 4095)).all()


@pytest.mark.parametrize(("dtype", "kind"), [("<u4", 1), ("<i4", 2), ("<i2", 2), ("<f4", 3)])
@pytest.mark.parametrize("max_value", [255, 1023, 65_535])
def test_wide_values_of_few_bits(tmp_path, dtype, kind, max_value):
    if dtype == "<i2" and max_value > 32_767:
        max_value = 32_767
    values = np.round(RAMP * max_value).astype(dtype)
    dataset = opened(tmp_path, tiff(values, bits=8 * values.itemsize, kind=kind))
    assert (dataset.images[0, ..., 0] == shown(values, max_value)).all()


def test_fractions_in_unit_range_and_beyond(tmp_path):
    dataset = opened(tmp_path, tiff(RAMP.astype("<f4"), bits=32, kind=3))
    assert dataset.black_white == (0, 1)
    assert (dataset.images[0, ..., 0] == shown(RAMP.astype("<f4"), 1)).all()
    beyond = opened(tmp_path, tiff((RAMP * 255).astype("<f4"), bits=32, kind=3))
    assert beyond.black_white == (0, 255)
    assert (beyond.images[0, ..., 0] == np.round(RAMP * 255)).all()


@pytest.mark.parametrize(
    ("values", "bits", "kind", "message"),
    [
        (np.where(RAMP > 0.5, np.nan, 0).astype("<f4"), 32, 3, "not finite"),
        ((RAMP * 9).astype("<i1"), 8, 2, "signed values of 8 bits"),
    ],
)
def test_values_that_mean_no_brightness(tmp_path, values, bits, kind, message):
    with pytest.raises(ValueError, match=message):
        opened(tmp_path, tiff(values, bits=bits, kind=kind))


def test_color_png_of_few_bits(tmp_path):
    values = np.stack([RAMP * 4095, RAMP[::-1] * 4095, RAMP.T * 4095], axis=-1).round()
    dataset = opened(tmp_path, png16(values, RGB))
    assert (dataset.images[0] == shown(values, 4095)).all()


@pytest.mark.parametrize("kind", [GRAY_ALPHA, RGBA])
def test_deep_png_with_opacity_shows_white(tmp_path, kind):
    colors = np.repeat((RAMP * 60_000).round()[..., None], 1 if kind == GRAY_ALPHA else 3, axis=-1)
    alpha = RAMP.T
    dataset = opened(tmp_path, png16(np.dstack([colors, np.round(alpha * 65_535)]), kind))
    expected = colors / 65_535 * alpha[..., None] + 1 - alpha[..., None]
    assert np.abs(dataset.images[0] - expected * 255).max() <= 1.5
    assert any("transparent" in note for note in dataset.notes)


@pytest.mark.parametrize("bits", range(8, 17))
@pytest.mark.parametrize("packing", ["raw", "deflate"])
def test_color_tiff_of_any_range(tmp_path, bits, packing):
    values = (np.stack([RAMP, RAMP[::-1], RAMP.T], axis=-1) * (2**bits - 1)).round().astype("<u2")
    content = tiff(values, bits=16, photometric=2)
    if packing == "deflate":
        content = deflated(content, values.tobytes())
    dataset = opened(tmp_path, content)
    assert (dataset.images[0] == shown(values, 2**bits - 1)).all()


def deflated(content, data):
    """Return the TIFF with its pixels compressed."""
    packed = zlib.compress(data)
    entry = struct.Struct("<HHII")
    content = content.replace(entry.pack(259, 4, 1, 1), entry.pack(259, 4, 1, 8))
    content = content.replace(entry.pack(279, 4, 1, len(data)), entry.pack(279, 4, 1, len(packed)))
    return content[: -len(data)] + packed


def test_color_tiff_in_separate_planes_is_refused(tmp_path):
    full = (np.stack([RAMP] * 3) * 65_535).round().astype("<u2")
    with pytest.raises(ValueError, match="16 bits in RGB, in separate planes"):
        opened(tmp_path, tiff(full, bits=16, photometric=2, planar=2))


def test_formats_that_say_their_range_keep_it(tmp_path):
    values = np.round(RAMP * 900).astype(int)
    (tmp_path / "a.pgm").write_bytes(b"P5 8 8 4095\n" + values.astype(">u2").tobytes())
    dataset = open_dataset(tmp_path)
    assert np.abs(dataset.images[0, ..., 0] - shown(values, 4095)).max() <= 1


def test_masks_of_zero_and_one_are_said_to_be_black(tmp_path):
    Image.fromarray((RAMP > 0.5).astype(np.uint8)).save(tmp_path / "mask.png")
    assert any("masks of 0 and 1" in note for note in open_dataset(tmp_path).notes)
    mask = (RAMP > 0.5).astype(np.uint8)[None, ..., None]
    assert any("masks of 0 and 1" in note for note in open_dataset(mask).notes)
    assert not any("masks" in note for note in open_dataset(mask * 2).notes)


@given(st.lists(st.integers(0, 65_535), min_size=1, max_size=5))
def test_white_is_a_power_of_two_less_one_and_the_least(values):
    ramps = [np.linspace(0, v, 257).round() for v in values]
    black, white = find_black_white([ValueSample(ramp, True, False) for ramp in ramps])
    assert black == 0
    assert white >= max(values)
    assert white == 255 or white < 2 * max(values)
    assert (int(white) + 1).bit_count() == 1
