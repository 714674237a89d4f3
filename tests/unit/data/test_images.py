import os
import struct
import zlib
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forked import CONTEXT
from made_images import chunk, saved
from widefield.core.form import center_fit
from widefield.data import open_dataset
from widefield.data.decode import decoding
from widefield.data.decode.images import decode
from widefield.data.decode.values import resize_array
from widefield.data.readers.images import common_size, read_folder

GRAY = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
RGB = np.random.default_rng(0).integers(0, 256, (3, 4, 3), dtype=np.uint8)


def three(gray):
    return np.repeat(np.asarray(gray, dtype=np.uint8)[..., None], 3, axis=-1)


def decoded(image, tmp_path, suffix, **options):
    path = tmp_path / f"image{suffix}"
    image.save(path, **options)
    found = decode(path, size=(image.height, image.width))
    assert found.pixels.dtype == np.uint8
    assert "resized" not in found.choices
    return found.pixels


def folder_of(tmp_path, count, side=8, suffix=".png"):
    rng = np.random.default_rng(0)
    for i in range(count):
        pixels = rng.integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i:03d}{suffix}")
    return tmp_path


def test_rgb_and_gray(tmp_path):
    assert (decoded(Image.fromarray(RGB), tmp_path, ".png") == RGB).all()
    assert (decoded(Image.fromarray(RGB), tmp_path, ".bmp") == RGB).all()
    assert (decoded(Image.fromarray(RGB), tmp_path, ".webp", lossless=True) == RGB).all()
    assert (decoded(Image.fromarray(GRAY), tmp_path, ".png") == three(GRAY)).all()


def test_one_bit(tmp_path):
    bits = Image.fromarray(GRAY > 100)
    assert bits.mode == "1"
    assert (decoded(bits, tmp_path, ".png") == three((GRAY > 100) * 255)).all()


def test_palette(tmp_path):
    image = Image.fromarray(GRAY // 20)
    image.putpalette([channel for i in range(12) for channel in (i, 2 * i, 3 * i)])
    index = GRAY // 20
    expected = np.stack([index, 2 * index, 3 * index], axis=-1)
    assert (decoded(image, tmp_path, ".png") == expected).all()
    assert (decoded(image, tmp_path, ".gif") == expected).all()


def test_transparent_palette_entry_shows_white(tmp_path):
    image = Image.fromarray(GRAY // 20)
    image.putpalette([7] * 36)
    expected = np.full((3, 4, 3), 7)
    expected[0, 2] = 255
    assert (decoded(image, tmp_path, ".png", transparency=2) == expected).all()


def test_alpha_is_composited_on_white(tmp_path):
    alpha = np.array([[0, 255, 51, 128]] * 3, dtype=np.uint8)
    share = alpha[..., None] / 255
    expected = RGB * share + 255 * (1 - share)
    rgba = Image.fromarray(np.dstack([RGB, alpha]))
    assert np.abs(decoded(rgba, tmp_path, ".png") - expected).max() <= 1
    expected_gray = three(np.round(GRAY * share[..., 0] + 255 * (1 - share[..., 0])))
    gray_alpha = Image.merge("LA", [Image.fromarray(GRAY), Image.fromarray(alpha)])
    difference = decoded(gray_alpha, tmp_path, ".png").astype(int) - expected_gray
    assert np.abs(difference).max() <= 1


def test_cmyk(tmp_path):
    ink = np.zeros((3, 4, 4), dtype=np.uint8)
    ink[:, :2, 0] = 255  # full cyan takes all red away
    ink[:, 2:, 3] = 255  # full black takes everything away
    pixels = decoded(Image.frombytes("CMYK", (4, 3), ink.tobytes()), tmp_path, ".tif")
    assert (pixels[:, :2] == [0, 255, 255]).all()
    assert (pixels[:, 2:] == 0).all()


ORIENTED = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", ORIENTED)
@pytest.mark.parametrize("suffix", [".png", ".tif", ".webp"])
def test_exif_orientation_is_applied(tmp_path, orientation, suffix):
    exif = Image.Exif()
    exif[0x0112] = orientation
    expected = ORIENTED[orientation](RGB)
    options = {"lossless": True} if suffix == ".webp" else {}
    Image.fromarray(RGB).save(tmp_path / f"turned{suffix}", exif=exif, **options)
    dataset = open_dataset(tmp_path)
    assert dataset.images.shape[1:] == expected.shape
    assert (dataset.images[0] == expected).all()


def test_first_frame_of_an_animation(tmp_path):
    frames = [Image.fromarray(three(np.full((3, 4), value))) for value in (200, 10)]
    pixels = decoded(frames[0], tmp_path, ".gif", save_all=True, append_images=frames[1:])
    assert (pixels == 200).all()


def test_large_jpeg_decoded_small_is_close_to_the_full_reduction(tmp_path):
    blocks = np.random.default_rng(0).integers(40, 216, (128, 192, 3), dtype=np.uint8)
    large = blocks.repeat(4, axis=0).repeat(4, axis=1)
    Image.fromarray(large).save(tmp_path / "a.jpg", quality=95, subsampling=0)
    found = decode(tmp_path / "a.jpg", size=(128, 128))
    full = Image.fromarray(large[:, 128:640]).resize((128, 128), Image.Resampling.BICUBIC)
    assert "resized" in found.choices
    assert np.abs(found.pixels.astype(int) - np.asarray(full)).mean() < 3


def test_shorter_side_is_resized_and_the_rest_cut_around_the_center(tmp_path):
    pixels = np.zeros((32, 64, 3), dtype=np.uint8)
    pixels[:, 16:48] = [10, 200, 30]
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    Image.fromarray(pixels.transpose(1, 0, 2)).save(tmp_path / "tall.png")
    dataset = open_dataset(tmp_path, image_size=32)
    assert dataset.images.shape == (2, 32, 32, 3)
    assert (dataset.images == [10, 200, 30]).all()
    assert any("2 of 2 images brought to 32x32" in note for note in dataset.notes)


def test_array_resize_agrees_with_pillow():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (2, 12, 20, 3), dtype=np.uint8)
    images = small.repeat(4, axis=1).repeat(4, axis=2)
    for size, fit in product(((16, 16), (48, 64), (24, 40)), ("crop", "pad", "squash")):
        ours = resize_array(images, size, fit)
        (height, width), (top, left) = center_fit((48, 80), size, fit)
        for image, result in zip(images, ours, strict=True):
            whole = Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC)
            cut = whole.crop((left, top, left + size[1], top + size[0]))
            assert np.abs(np.asarray(cut).astype(int) - result).max() <= 1


@pytest.mark.parametrize("size", [(32, 32), (20, 48)])
@pytest.mark.parametrize("kind", ["files", "array", "channels"])
def test_an_image_is_cut_padded_or_squashed(tmp_path, kind, size):
    """A white image is white where it is shown, and black around it."""
    white = np.full((40, 80, 3), 255, np.uint8)
    Image.fromarray(white).save(tmp_path / "0.png")
    data = {"files": tmp_path, "array": {"x": white[None]}, "channels": f"{tmp_path}:channels"}
    shown = {}
    for fit in ("crop", "pad", "squash"):
        dataset = open_dataset(data[kind], image_size=size, fit=fit)
        shown[fit] = dataset.images[0] > 127
        assert dataset.form.fit == fit
        lost = [note for note in dataset.notes if "of their area" in note]
        assert bool(lost) == (fit == "crop")
        assert all(note.endswith("fit='pad' or squash keeps it") for note in lost)
    assert shown["crop"].all()
    assert shown["squash"].all()
    rows, columns = shown["pad"].any((1, 2)), shown["pad"].any((0, 2))
    inside = {(32, 32): (16, 32), (20, 48): (20, 40)}[size]
    assert (rows.sum(), columns.sum()) == inside
    assert (rows == rows[::-1]).all()
    assert (columns == columns[::-1]).all()
    with pytest.raises(ValueError, match=r"fit 'pat'.*did you mean 'pad'"):
        open_dataset(data[kind], fit="pat")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([(20, 30)] * 3, (20, 30)),
        ([(224, 224)] * 2, (224, 224)),
        ([(20, 30), (30, 20)], (32, 32)),
        ([(100, 140), (90, 90), (110, 300)], (96, 96)),
        ([(300, 400)] * 2, (224, 224)),
        ([(1, 1), (2, 2)], (32, 32)),
    ],
)
def test_common_size(tmp_path, sizes, expected):
    for i, (height, width) in enumerate(sizes):
        Image.new("RGB", (width, height)).save(tmp_path / f"{i}.png")
    assert common_size(sorted(tmp_path.iterdir())) == expected


def test_common_size_does_not_depend_on_split_or_limit(tmp_path):
    for i, side in enumerate([40, 60, 64, 90, 100, 130] * 4):
        Image.new("RGB", (side, side)).save(tmp_path / f"{i}.png")
    shapes = {open_dataset(tmp_path, max_examples=2).images.shape[1:]}
    shapes |= {open_dataset(f"{tmp_path}:{split}").images.shape[1:] for split in ("train", "test")}
    assert shapes == {(64, 64, 3)}


def test_folder_order_names_and_classes(tmp_path):
    for path in ("b/2.png", "b/deep/1.png", "a/9.JPG", "a/10.png", "c c/é+:.png"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(tmp_path / path, format="PNG")
    (tmp_path / "a" / "notes.txt").write_text("not an image")
    (tmp_path / "a" / "._9.JPG").write_text("a hidden file")
    (tmp_path / ".git").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / ".git" / "x.png")
    dataset = open_dataset(tmp_path)
    assert dataset.paths == ["a/10.png", "a/9.JPG", "b/2.png", "b/deep/1.png", "c c/é+:.png"]
    assert dataset.classes == {"class": ("a", "b", "c c")}
    assert dataset.labels["class"].tolist() == [0, 0, 1, 1, 2]


def test_flat_folder_has_no_task(tmp_path):
    dataset = open_dataset(folder_of(tmp_path, 3))
    assert dataset.labels == {}
    assert len(dataset) == 3


def test_images_outside_subfolders_are_a_class_of_their_own(tmp_path):
    folder_of(tmp_path, 2)
    (tmp_path / "cats").mkdir()
    folder_of(tmp_path / "cats", 1)
    dataset = open_dataset(tmp_path)
    assert dataset.classes["class"] == (".", "cats")
    assert dataset.labels["class"].tolist() == [0, 0, 1]


def test_links_are_followed_once(tmp_path):
    (tmp_path / "real").mkdir()
    folder_of(tmp_path / "real", 2)
    (tmp_path / "real" / "up").symlink_to(tmp_path)
    assert open_dataset(tmp_path).paths == ["real/000.png", "real/001.png"]


def test_file_name_that_is_not_text(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png")
    os.rename(tmp_path / "x.png", os.fsencode(tmp_path) + b"/bad\xff.png")
    assert open_dataset(tmp_path).paths == ["bad\\xff.png"]
    assert open_dataset(tmp_path).skipped == ()


def test_empty_folder_and_folder_without_images(tmp_path):
    with pytest.raises(ValueError, match="no images under"):
        open_dataset(tmp_path)
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(ValueError, match="no images under"):
        open_dataset(tmp_path)


def damage(folder):
    """Put four unreadable files among the images, each of another kind."""
    whole = (folder / "000.png").read_bytes()
    (folder / "a-truncated.png").write_bytes(whole[: len(whole) // 2])
    (folder / "b-text.jpg").write_text("this is not an image")
    (folder / "c-empty.png").write_bytes(b"")
    (folder / "d-huge.png").write_bytes(huge_png(20_000, 20_000))
    return ["a-truncated.png", "b-text.jpg", "c-empty.png", "d-huge.png"]


def huge_png(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def test_unreadable_files_are_skipped_counted_and_named(tmp_path):
    clean = open_dataset(folder_of(tmp_path, 80))
    bad = damage(tmp_path)
    dataset = open_dataset(tmp_path)
    assert dataset.paths == clean.paths
    assert (dataset.images == clean.images).all()
    assert [skipped.path for skipped in dataset.skipped] == bad
    reasons = [skipped.reason for skipped in dataset.skipped]
    assert "truncated" in reasons[0]
    assert reasons[1] == reasons[2] == "not an image"
    assert "more pixels than the limit of 100 million" in reasons[3]
    assert any("4 unreadable files skipped" in note for note in dataset.notes)


def test_pixel_limit_applies_below_pillows_own(tmp_path):
    folder_of(tmp_path, 40)
    (tmp_path / "large.png").write_bytes(huge_png(10_001, 10_000))
    (skipped,) = open_dataset(tmp_path).skipped
    assert skipped.path == "large.png"
    assert skipped.reason == "10001x10000 pixels, more than the limit of 100 million"


def test_unreadable_file_in_the_middle_leaves_no_gap(tmp_path):
    folder_of(tmp_path, 60)
    clean = open_dataset(tmp_path)
    (tmp_path / "030.png").write_text("broken")
    dataset = open_dataset(tmp_path)
    keep = [i for i in range(60) if i != 30]
    assert dataset.paths == [clean.paths[i] for i in keep]
    assert (dataset.images == clean.images[keep]).all()


def test_many_unreadable_files_are_refused(tmp_path):
    folder_of(tmp_path, 76)
    damage(tmp_path)
    assert len(open_dataset(tmp_path)) == 76  # 4 of 80 is 5 %
    (tmp_path / "e.png").write_text("one more")
    with pytest.raises(
        ValueError, match=r"5 of 81 files cannot be read, more than 5%.*a-truncated"
    ) as info:
        open_dataset(tmp_path)
    assert "\n" not in str(info.value)


def test_limit_replaces_unreadable_files(tmp_path):
    folder_of(tmp_path, 60)
    (tmp_path / "002.png").write_text("broken")
    dataset = open_dataset(tmp_path, max_examples=4)
    assert dataset.paths == ["000.png", "001.png", "003.png", "004.png"]
    assert [skipped.path for skipped in dataset.skipped] == ["002.png"]


def test_progress_reaches_the_end_and_never_falls(tmp_path):
    seen = []
    open_dataset(folder_of(tmp_path, 70), progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (70, 70)


def test_an_error_in_progress_is_not_swallowed(tmp_path):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_dataset(folder_of(tmp_path, 40), progress=interrupt)


def test_listing_reads_no_image(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.png").write_text("never opened")
    assert read_folder(tmp_path).names == ["0.png", "1.png", "2.png"]


def test_headers_share_one_search_for_libtiff(tmp_path, monkeypatch):
    """It reads the process's memory map, which takes as long as decoding hundreds of headers."""
    folder_of(tmp_path, 30)
    searched, read_text = [], Path.read_text

    def counted(path, *args, **kwargs):
        searched.append(path)
        return read_text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", counted)
    open_dataset(tmp_path)
    assert searched.count(Path("/proc/self/maps")) <= 1


def open_aloud(folder, stderr, arm):
    """Decode in a process with an stderr of its own."""
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT), 2)
    if arm == "control":
        decoding._libtiff = lambda: None
    assert len(open_dataset(folder).skipped) == 1


def test_libtiff_prints_nothing_about_a_damaged_file(tmp_path):
    """It writes to the process's stderr by itself: the control."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    damaged = bytearray(saved(pixels, "TIFF", compression="tiff_deflate"))
    damaged[200:400] = bytes(200)
    folder = tmp_path / "images"
    folder.mkdir()
    folder_of(folder, 20)
    (folder / "b.tif").write_bytes(damaged)
    for arm, loud in (("quiet", False), ("control", True)):
        process = CONTEXT.Process(target=open_aloud, args=(folder, tmp_path / arm, arm))
        process.start()
        process.join()
        assert process.exitcode == 0
        assert ("Decode" in (tmp_path / arm).read_text()) == loud
