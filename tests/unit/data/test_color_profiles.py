"""Color profiles against the conversion written out; the control is the pixels as stored."""

import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from made_images import RGB, chunk, png16
from made_profiles import (
    ADOBE_RGB,
    DISPLAY_P3,
    LINEAR_SRGB,
    PROPHOTO,
    SRGB_COLUMNS,
    cmyk_profile,
    gamma_curve,
    gray_profile,
    rgb_profile,
    table_curve,
)
from widefield.data import open_dataset

COLORS = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
GRAY = np.arange(192, dtype=np.uint8).reshape(12, 16)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
LOSSLESS = {".png": {}, ".tif": {}, ".webp": {"lossless": True, "exact": True}}


def encoded(linear):
    """sRGB values from 0 to 255 of linear ones, IEC 61966-2-1."""
    x = np.clip(linear, 0, 1)
    return 255 * np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)


def srgb_of(pixels, columns, gamma):
    """Through XYZ: x_sRGB = S^-1 M v^gamma."""
    linear = (pixels / 255.0) ** gamma
    return encoded(linear @ np.array(columns) @ np.linalg.inv(SRGB_COLUMNS))


def opened(folder, image, suffix=".png", **options):
    folder.mkdir(exist_ok=True)
    image.save(folder / f"a{suffix}", **options)
    dataset = open_dataset(folder)
    return dataset.images[0].astype(int), "; ".join(dataset.notes)


@pytest.mark.parametrize("suffix", LOSSLESS)
@pytest.mark.parametrize("space", [ADOBE_RGB, DISPLAY_P3, PROPHOTO, LINEAR_SRGB])
def test_colors_of_other_spaces_become_srgb(tmp_path, space, suffix):
    image, options = Image.fromarray(COLORS), LOSSLESS[suffix]
    stored, note = opened(tmp_path / "control", image, suffix, **options)
    assert (stored == COLORS).all()
    assert "profile" not in note
    seen, note = opened(
        tmp_path / "profile", image, suffix, icc_profile=rgb_profile(*space), **options
    )
    expected = srgb_of(COLORS, *space)
    assert np.abs(seen - expected).max() <= 2
    assert np.abs(stored - expected).max() > 30
    assert "1 are converted from their color profile to sRGB" in note


def test_opacity_palettes_and_orientation_stay(tmp_path):
    profile = rgb_profile(*ADOBE_RGB)
    expected = srgb_of(COLORS, *ADOBE_RGB)
    alpha = np.random.default_rng(1).integers(0, 256, (12, 16), dtype=np.uint8)
    clear = Image.fromarray(np.dstack([COLORS, alpha]))
    seen, note = opened(tmp_path / "alpha", clear, icc_profile=profile)
    share = alpha[..., None] / 255
    assert np.abs(seen - (expected * share + 255 * (1 - share))).max() <= 2.5
    assert "transparent" in note
    index = Image.fromarray(GRAY // 2)
    index = Image.frombytes("P", index.size, index.tobytes())
    index.putpalette(COLORS[:8].ravel().tolist())
    seen, _ = opened(tmp_path / "palette", index, icc_profile=profile)
    shown = np.asarray(index.convert("RGB"))
    assert np.abs(seen - srgb_of(shown, *ADOBE_RGB)).max() <= 2
    exif = Image.Exif()
    exif[0x0112] = 6
    seen, note = opened(
        tmp_path / "turned", Image.fromarray(COLORS), icc_profile=profile, exif=exif
    )
    assert np.abs(seen - np.rot90(expected, -1)).max() <= 2
    assert "EXIF" in note


def test_sixteen_bits_with_a_profile(tmp_path):
    data = zlib.compress(rgb_profile(*PROPHOTO))
    content = png16(COLORS.astype(int) * 257, RGB, chunk(b"iCCP", b"made\0\0" + data))
    (tmp_path / "a.png").write_bytes(content)
    seen = open_dataset(tmp_path).images[0].astype(int)
    assert np.abs(seen - srgb_of(COLORS, *PROPHOTO)).max() <= 2


@pytest.mark.parametrize("gamma", [1.0, 1.8])
def test_gray_profiles_have_a_curve(tmp_path, gamma):
    options = {"icc_profile": gray_profile(gamma)}
    expected = encoded((GRAY / 255.0) ** gamma)
    seen, note = opened(tmp_path / "gray", Image.fromarray(GRAY), **options)
    assert (seen == seen[..., :1]).all()
    assert np.abs(seen[..., 0] - expected).max() <= 2
    assert np.abs(GRAY - expected).max() > 10
    assert "sRGB" in note
    opaque = Image.merge("LA", [Image.fromarray(GRAY), Image.new("L", (16, 12), 255)])
    same, _ = opened(tmp_path / "opaque", opaque, **options)
    assert (same == seen).all()


def test_gray_images_may_have_a_profile_of_colors(tmp_path):
    image = Image.fromarray(GRAY)
    seen, note = opened(tmp_path / "adobe", image, icc_profile=rgb_profile(*ADOBE_RGB))
    expected = srgb_of(np.stack([GRAY] * 3, axis=-1), *ADOBE_RGB)
    assert np.abs(seen - expected).max() <= 2
    assert "sRGB" in note
    for mode in ("L", "1"):
        seen, note = opened(tmp_path / mode, image.convert(mode), icc_profile=SRGB)
        assert (seen[..., 0] == np.asarray(image.convert(mode).convert("L"))).all()
        assert "profile" not in note


def srgb_table(size):
    """The curve of sRGB as programs store it."""
    x = np.linspace(0, 1, size)
    linear = np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)
    return table_curve(np.round(65_535 * linear).astype(int))


@pytest.mark.parametrize(
    "profile", [SRGB, *(rgb_profile(SRGB_COLUMNS, srgb_table(n)) for n in (4096, 1024, 64))]
)
@pytest.mark.parametrize("suffix", [*LOSSLESS, ".jpg"])
def test_srgb_under_any_name_changes_no_bit(tmp_path, profile, suffix):
    options = LOSSLESS.get(suffix, {"quality": 90})
    plain, _ = opened(tmp_path / "plain", Image.fromarray(COLORS), suffix, **options)
    named, note = opened(
        tmp_path / "named", Image.fromarray(COLORS), suffix, icc_profile=profile, **options
    )
    assert (named == plain).all()
    assert "profile" not in note


def test_inks_have_the_colors_of_their_profile(tmp_path):
    def lab(cyan, magenta, yellow, black):  # a press without colors: each ink is a gray
        return 100 * (1 - 0.5 * cyan) * (1 - 0.3 * magenta) * (1 - black) * (1 - 0.1 * yellow), 0, 0

    inks = np.zeros((4, 5, 4), dtype=np.uint8)
    inks[:2, :, 0] = 255
    image = Image.frombytes("CMYK", (5, 4), inks.tobytes())
    control, note = opened(tmp_path / "control", image, ".tif")
    assert (control[0, 0] == [0, 255, 255]).all()
    assert "come from CMYK, without a color profile" in note
    seen, note = opened(tmp_path / "profile", image, ".tif", icc_profile=cmyk_profile(lab))
    assert np.abs(seen[0, 0] - 119).max() <= 2  # L* = 50
    assert (seen[-1, -1] >= 254).all()
    assert "CMYK" not in note


@pytest.mark.parametrize(
    "profile",
    [
        b"no profile",
        rgb_profile(*ADOBE_RGB)[:200],
        rgb_profile(*ADOBE_RGB).replace(b"rXYZ", b"qXYZ"),
        rgb_profile(*ADOBE_RGB).replace(gamma_curve(ADOBE_RGB[1]), b"x" * 14),
        gray_profile(1.8),
        cmyk_profile(lambda *inks: (50, 0, 0)),
    ],
)
def test_what_is_no_profile_of_these_colors_is_ignored_and_counted(tmp_path, profile):
    seen, note = opened(tmp_path / "a", Image.fromarray(COLORS), icc_profile=profile)
    assert (seen == COLORS).all()
    assert "of 1 images, 1 have a color profile that is damaged or for other colors" in note


def test_images_of_one_folder_have_their_own_profiles(tmp_path):
    spaces = [None, ADOBE_RGB, DISPLAY_P3, None, ADOBE_RGB]
    for i, space in enumerate(spaces):
        options = {} if space is None else {"icc_profile": rgb_profile(*space)}
        Image.fromarray(COLORS).save(tmp_path / f"{i}.png", **options)
    dataset = open_dataset(tmp_path)
    for image, space in zip(dataset.images, spaces, strict=True):
        expected = COLORS if space is None else srgb_of(COLORS, *space)
        assert np.abs(image - expected).max() <= (0 if space is None else 2)
    assert any("of 5 images, 3 are converted" in note for note in dataset.notes)
