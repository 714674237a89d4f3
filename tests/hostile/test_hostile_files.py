"""A grammar of odd and malformed files: each is read right, or refused in one line.

A case is drawn from a seed. It fills a folder and says which picture is in it, if that is known. A
picture that is read must be that one; anything but a picture or one line is a failure, and so is
waiting.
"""

import io
import os
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from made_images import GREY, GREY_ALPHA, RGB, RGBA, png16, tiff
from widefield.data import Dataset, open_dataset

CASES, BATCHES = 30, 12
"""Cases of a batch; batches of each grammar."""
LIMIT = 20.0
"""Seconds after which a case counts as hanging, on a busy machine."""

Rng = np.random.Generator
Picture = NDArray[np.float64] | None
"""What must be seen, [H, W, 3] from 0 to 255; None where it is not known."""


def outcome(call: Callable[[], Dataset]) -> Dataset | str:
    """Return what `call` opens, or the line by which it refuses; fail for all else."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert found, f"no answer after {LIMIT:.0f} seconds"
    if isinstance(found[0], Dataset):
        return found[0]
    assert type(found[0]) is ValueError, repr(found[0])
    line = str(found[0])
    assert line
    assert "\n" not in line
    assert len(line) < 1_000
    return line


def check_whole(dataset: Dataset) -> None:
    """What is handed out is sound in itself, and can be shown and written anywhere."""
    assert len(dataset) > 0
    assert dataset.images.dtype == np.uint8
    told = [*dataset.paths, *dataset.notes, *dataset.labels]
    told += [name for names in dataset.classes.values() for name in names]
    told += [word for skipped in dataset.skipped for word in (skipped.path, skipped.reason)]
    assert all(text.isprintable() for text in told), told
    for task, names in dataset.classes.items():
        assert len(set(names)) == len(names)
        assert dataset.labels[task].max() < len(names)


# One image file -----------------------------------------------------------------------------


def pattern(rng: Rng, channels: int) -> NDArray[np.float64]:
    """Return a picture [H, W, C] in [0, 1] that is no mirror image of itself."""
    height, width = (int(side) for side in rng.integers(8, 40, 2))
    picture = rng.random((height, width, channels))
    picture[0, 0], picture[-1, -1] = 1, 0  # all of the range is used
    return picture


def levels(picture: NDArray[np.float64], white: float) -> NDArray[np.float64]:
    return np.round(picture * white)


def three(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    grey = picture if picture.ndim == 3 else picture[..., None]
    return np.broadcast_to(grey, (*grey.shape[:2], 3))


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def plain(rng: Rng) -> tuple[bytes, Picture]:
    """Eight bits in a lossless format, by Pillow."""
    channels = int(rng.choice([1, 3]))
    values = levels(pattern(rng, channels), 255).astype(np.uint8)
    image = Image.fromarray(values[..., 0] if channels == 1 else values)
    kinds = ["PNG", "BMP", "TIFF", "PPM", "TGA", "WEBP", "JPEG2000"]
    kind = str(rng.choice(kinds + ["GIF"] * (channels == 1)))
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    if kind == "TIFF":
        options["compression"] = str(rng.choice(["raw", "tiff_lzw", "tiff_deflate", "packbits"]))
    return saved(image, kind, **options), three(values.astype(float))


def turned(rng: Rng) -> tuple[bytes, Picture]:
    """An EXIF orientation, applied here by numpy."""
    values = levels(pattern(rng, 3), 255).astype(np.uint8)
    orientation = int(rng.integers(0, 10))
    exif = Image.Exif()
    exif[0x0112] = orientation
    kind = str(rng.choice(["PNG", "TIFF", "WEBP"]))
    options = {"lossless": True} if kind == "WEBP" else {}
    content = saved(Image.fromarray(values), kind, exif=exif, **options)
    upright = {2: values[:, ::-1], 3: values[::-1, ::-1], 4: values[::-1]}
    upright |= {5: values.transpose(1, 0, 2), 6: np.rot90(values, -1), 8: np.rot90(values, 1)}
    upright[7] = values[::-1, ::-1].transpose(1, 0, 2)
    return content, upright.get(orientation, values).astype(float)


def photograph(rng: Rng) -> tuple[bytes, Picture]:
    """A JPEG or AVIF of one colour, which no compression changes much."""
    colour = rng.integers(0, 256, 3)
    values = np.broadcast_to(colour, (16, 24, 3)).astype(np.uint8)
    kind = str(rng.choice(["JPEG", "AVIF"] if "AVIF" in Image.SAVE else ["JPEG"]))
    options = {"progressive": bool(rng.integers(2)), "subsampling": 0} if kind == "JPEG" else {}
    return saved(Image.fromarray(values), kind, quality=95, **options), values.astype(float)


def clear(rng: Rng) -> tuple[bytes, Picture]:
    """Opacity of every kind, shown on white."""
    values = levels(pattern(rng, 4), 255)
    colours, alpha = values[..., :3], values[..., 3:]
    if rng.integers(2):
        colours = np.broadcast_to(colours[..., :1], colours.shape)
        image = Image.merge(
            "LA", [Image.fromarray(x.astype(np.uint8)) for x in (colours[..., 0], alpha[..., 0])]
        )
    else:
        image = Image.fromarray(values.astype(np.uint8))
    kind = str(rng.choice(["PNG", "TIFF"] + ["WEBP"] * (image.mode == "RGBA")))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    shown = colours * (alpha / 255) + 255 - alpha
    return saved(image, kind, **options), shown


def paletted(rng: Rng) -> tuple[bytes, Picture]:
    """Indices into up to 256 colours, in 1 to 8 bits."""
    count = int(rng.choice([2, 4, 16, 256]))
    colours = rng.integers(0, 256, (count, 3))
    index = rng.integers(0, count, (12, 17))
    image = Image.fromarray(index.astype(np.uint8), mode=None)
    image = image.convert("P") if image.mode != "P" else image
    image = Image.frombytes("P", (17, 12), index.astype(np.uint8).tobytes())
    image.putpalette(colours.ravel().tolist())
    kind = str(rng.choice(["PNG", "BMP", "GIF", "TIFF"]))
    return saved(image, kind), colours[index].astype(float)


def deep_png(rng: Rng) -> tuple[bytes, Picture]:
    """A PNG of 16 bits, of which some number is in use."""
    bits, kind = int(rng.integers(8, 17)), int(rng.choice([GREY, RGB, GREY_ALPHA, RGBA]))
    colours = {GREY: 1, GREY_ALPHA: 1, RGB: 3, RGBA: 3}[kind]
    picture = pattern(rng, colours)
    values = levels(picture, 2**bits - 1)
    shown = values * 255 / (2**bits - 1)
    if kind in (GREY_ALPHA, RGBA):
        alpha = rng.random((*values.shape[:2], 1))
        shown = shown * alpha + 255 * (1 - alpha)
        values = np.dstack([values, np.round(alpha * 65_535)])
    return png16(values, kind), three(shown)


def deep_tiff(rng: Rng) -> tuple[bytes, Picture]:
    """An uncompressed TIFF of wide values, of which some bits are in use; 0 may be white."""
    dtype, bits, kind = [("<u2", 16, 1), ("<u4", 32, 1), ("<i4", 32, 2), ("<f4", 32, 3)][
        rng.integers(4)
    ]
    white = 1.0 if dtype == "<f4" and rng.integers(2) else float(2 ** rng.integers(8, 17) - 1)
    values = pattern(rng, 1)[..., 0] * white
    values = (values if white == 1 else np.round(values)).astype(dtype)
    inverted = bool(rng.integers(2)) and dtype in ("<u2", "<f4")
    shown = values.astype(float) * 255 / white
    content = tiff(values, bits=bits, kind=kind, photometric=0 if inverted else 1)
    return content, three(255 - shown if inverted else shown)


def text_format(rng: Rng) -> tuple[bytes, Picture]:
    """A PGM or PPM whose header says its largest value."""
    channels, white = int(rng.choice([1, 3])), int(rng.integers(1, 65_536))
    values = levels(pattern(rng, channels), white)
    height, width = values.shape[:2]
    wide = ">u2" if white > 255 else "u1"
    head = f"P{5 if channels == 1 else 6}\n{width} {height}\n{white}\n".encode()
    return head + values.astype(wide).tobytes(), three(values * 255 / white)


SOUND = (plain, turned, photograph, clear, paletted, deep_png, deep_tiff, text_format)

ROUNDING = {photograph: 3, clear: 2, deep_png: 2}
"""How far a pixel may be from what was written, where that is more than 1 of 255."""


def truncated(rng: Rng, content: bytes) -> bytes:
    return content[: rng.integers(0, len(content))]


def flipped(rng: Rng, content: bytes) -> bytes:
    damaged = bytearray(content)
    for place in rng.integers(0, len(content), rng.integers(1, 6)):
        damaged[place] ^= 1 << rng.integers(8)
    return bytes(damaged)


def overwritten(rng: Rng, content: bytes) -> bytes:
    """Replace the head, where sizes and offsets stand."""
    length = min(int(rng.integers(1, 40)), len(content))
    start = int(rng.integers(0, min(60, len(content))))
    return content[:start] + rng.bytes(length) + content[start + length :]


def repeated(rng: Rng, content: bytes) -> bytes:
    cut, length = rng.integers(0, len(content)), int(rng.integers(1, 200))
    return content[:cut] + content[cut : cut + length] * int(rng.integers(2, 300)) + content[cut:]


DAMAGE = (truncated, flipped, overwritten, repeated)

STRANGE = (
    b"",
    b"\0" * 500,
    b"plain text\n" * 9,
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\nshowpage\n",
    b"%PDF-1.4\n1 0 obj\n",
    b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    b"<html><script>alert(1)</script></html>",
    b"PK\x03\x04" + b"\0" * 40,
    b"\x80\x04\x95cposix\nsystem\n.",
    b"#!/bin/sh\ntouch ran\n",
    b"BM" + b"\xff" * 60,
    b"GIF89a" + b"\xff" * 60,
    b"RIFF\xff\xff\xff\xffWEBP" + b"\xff" * 60,
    b"II*\0\x08\0\0\0" + b"\xff" * 60,
    b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03" + b"\1" * 30,
    b"\x89PNG\r\n\x1a\n" + b"\xff" * 60,
    b"P5 99999 99999 255\n",
    b"P6 -1 5 255\n" + b"\0" * 30,
    b"P5 0 0 255\n",
)


def huge(rng: Rng) -> bytes:
    """A header of more pixels than anybody has."""
    width, height = (int(side) for side in rng.choice([20_000, 65_535, 2**31 - 1], 2))
    if rng.integers(2):
        return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 90, 0, 0, 54, 40, width, height, 1, 24,
                                   0, 0, 0, 0, 0, 0)  # fmt: skip

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 99))


SUFFIXES = (".png", ".jpg", ".JPEG", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".tga")
NAMES = ("a", "\x1b[2J", "new\nline", "\u202egpj", "é", "-rf", "--", "a+digits", "b:train", "%s{0}",
         "x" * 240, "\udcff", "\U0001f600", " ", "'\"", "\\", "NUL")  # fmt: skip


@pytest.mark.parametrize("seed", range(BATCHES))
def test_sound_images_of_every_kind_are_read_right(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    for case in range(CASES):
        make = SOUND[rng.integers(len(SOUND))]
        content, expected = make(rng)
        folder = tmp_path / str(case)
        folder.mkdir()
        name = str(rng.choice(NAMES)) + str(rng.choice(SUFFIXES))
        (folder / name).write_bytes(content)
        found = outcome(lambda folder=folder: open_dataset(folder))
        where = f"seed {seed}, case {case}: {make.__name__}"
        assert isinstance(found, Dataset), f"{where}: {found}"
        check_whole(found)
        assert found.images[0].shape == expected.shape, where
        assert np.abs(found.images[0] - expected).max() <= ROUNDING.get(make, 1), where


@pytest.mark.parametrize("seed", range(BATCHES))
def test_damaged_and_strange_images_are_refused_or_read(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    for case in range(CASES):
        kind = rng.integers(4)
        if kind == 0:
            content = STRANGE[rng.integers(len(STRANGE))]
        elif kind == 1 and rng.integers(3) == 0:
            content = huge(rng)
        else:
            content, _ = SOUND[rng.integers(len(SOUND))](rng)
            content = DAMAGE[rng.integers(len(DAMAGE))](rng, content)
        folder = tmp_path / str(case)
        folder.mkdir()
        (folder / f"a{rng.choice(SUFFIXES)}").write_bytes(content)
        found = outcome(lambda folder=folder: open_dataset(folder))
        if isinstance(found, Dataset):
            check_whole(found)
            assert kind != 0, f"seed {seed}, case {case}: {content[:30]!r} was read"


# One .npz file ------------------------------------------------------------------------------


def array(rng: Rng) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return an array, and the pixels [n, H, W, C] that it must be read as, if it is sound."""
    n, height, width = (int(side) for side in rng.integers(5, 12, 3))
    channels = int(rng.integers(1, 5))
    shape = [(n, height, width, channels), (n, channels, height, width), (n, height, width)][
        rng.integers(3)
    ]
    pixels = rng.integers(0, 256, shape)
    last = pixels[..., None] if len(shape) == 3 else pixels
    last = last if last.shape[-1] in (1, 2, 3, 4) else np.moveaxis(last, 1, -1)
    kind = rng.integers(6)
    if kind < 2:
        return pixels.astype(np.uint8), last
    if kind == 2:
        return pixels.astype(rng.choice([np.float32, np.float64, ">f4"])) / 255, last
    if kind == 3:
        return np.asfortranarray(pixels > 127), (last > 127) * 255
    wrong = [
        pixels,
        pixels.astype(np.float64),
        np.where(pixels > 9, np.nan, 0),
        pixels.astype(complex),
        pixels.astype(str),
        pixels.astype(object),
        pixels.astype("M8[s]"),
        pixels.astype(np.uint16),
        np.zeros((0, 8, 8, 3), np.uint8),
        np.zeros((3, 0, 8, 3), np.uint8),
        np.zeros((8, 8, 3), np.uint8),
        np.zeros(7, np.uint8),
        np.uint8(3),
        np.zeros((2, 2, 2, 2, 2), np.uint8),
        np.zeros((3, 8, 8, 9), np.uint8),
        np.zeros((3, 8, 8, 3), [("r", "u1")]),
    ]
    return wrong[rng.integers(len(wrong))], None


def labels(rng: Rng, n: int) -> tuple[dict[str, NDArray[Any]], bool]:
    """Return one task and perhaps its class names, and whether they are sound."""
    sound = [
        {"t": rng.integers(0, 3, n)},
        {"t": rng.integers(0, 3, n).astype(np.uint8), "t_classes": np.array(["a", "b", "ü"])},
        {"t": rng.choice(["cat", "dog", "\x1b[2J"], n)},
        {"t": rng.choice([b"cat", "dög".encode()], n)},
        {"t": rng.integers(0, 2, n).astype(bool)},
    ]
    wrong = [
        {"t": rng.integers(0, 3, n + 1)},
        {"t": rng.integers(0, 3, (n, 2))},
        {"t": rng.random(n)},
        {"t": np.full(n, -1)},
        {"t": np.full(n, 2**62)},
        {"t": np.where(np.arange(n) % 2, 65_535, 0)},
        {"t": np.full(n, None)},
        {"t": np.full(n, b"\xff")},
        {"t": np.zeros(n, int), "t_classes": np.array(["a", "a"])},
        {"t": np.ones(n, int), "t_classes": np.array(["a"])},
        {"t": np.zeros(n, int), "t_classes": np.array(3)},
        {"t": np.zeros(n, int), "t_classes": np.array([b"\xff\xfe"])},
        {"t": np.full(n, "z"), "t_classes": np.array(["a"])},
        {"\x1b]0;t\x07": np.zeros(n, int)},
        {"audio": np.zeros(n)},
        {"t": np.zeros(n, "M8[s]")},
        {"t": np.array(1)},
    ]
    if rng.integers(2):
        return sound[rng.integers(len(sound))], True
    return wrong[rng.integers(len(wrong))], False


@pytest.mark.parametrize("seed", range(BATCHES))
def test_arrays_are_read_right_or_refused(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    for case in range(CASES):
        x, expected = array(rng)
        task, is_sound = labels(rng, len(x) if x.ndim else 1)
        path, where = tmp_path / f"{case}.npz", f"seed {seed}, case {case}: {x.dtype} {x.shape}"
        (np.savez if rng.integers(2) else np.savez_compressed)(path, x=x, **task)
        for data in (path, {"x": x, **task}):
            found = outcome(lambda data=data: open_dataset(data))
            if isinstance(found, Dataset):
                check_whole(found)
            if expected is None or not is_sound:
                assert isinstance(found, str), where
            elif isinstance(found, str):
                assert "may be one colour image" in found, f"{where}: {found}"
            else:
                assert found.images.shape == expected.shape, where
                assert (found.images == expected).all(), where


@pytest.mark.parametrize("seed", range(BATCHES))
def test_damaged_archives_are_refused_or_read(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([4, seed])
    buffer = io.BytesIO()
    np.savez(buffer, x=rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8), t=np.arange(6) % 2)
    for case in range(CASES):
        damage = DAMAGE[rng.integers(len(DAMAGE))]
        path = tmp_path / f"{case}.npz"
        path.write_bytes(damage(rng, buffer.getvalue()))
        found = outcome(lambda path=path: open_dataset(path))
        if isinstance(found, Dataset):
            check_whole(found)


# A folder -----------------------------------------------------------------------------------


def odd_entry(rng: Rng, folder: Path, number: int) -> None:
    """Put one thing into `folder` that is no picture, or another way to a picture."""
    path = folder / (
        str(rng.choice(NAMES)) + str(number) + str(rng.choice((*SUFFIXES, "", ".nef")))
    )
    real = [entry for entry in folder.rglob("*.png") if entry.is_file()]
    kind = rng.integers(8)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(path.name)  # itself
    elif kind == 2:
        path.symlink_to(folder)  # a way up
    elif kind == 3:
        path.symlink_to(["/dev/zero", "/dev/stdin", "/dev/tty"][rng.integers(3)])
    elif kind == 4:
        path.mkdir()
    elif kind == 5:
        path.symlink_to("nowhere")
    elif kind == 6:
        path.write_bytes(STRANGE[rng.integers(len(STRANGE))])
    else:
        path.symlink_to(real[rng.integers(len(real))])


@pytest.mark.parametrize("seed", range(BATCHES))
def test_folders_with_odd_entries_keep_their_pictures(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    for case in range(3):
        folder = tmp_path / str(case)
        for i in range(120):
            place = folder / ("cat", "dog\x1b[2J")[i % 2]
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (i, 2, 3)).save(place / f"{i:03d}.png")
        for number in range(rng.integers(1, 6)):
            odd_entry(rng, (folder, folder / "cat")[rng.integers(2)], number)
        limit = [None, 120, 7][rng.integers(3)]
        found = outcome(lambda folder=folder, limit=limit: open_dataset(folder, limit=limit))
        assert isinstance(found, Dataset), f"seed {seed}, case {case}: {found}"
        check_whole(found)
        assert len(found) >= min(limit or 120, 115)
        by_name = dict(zip(found.paths, found.images[:, 0, 0, 0].tolist(), strict=True))
        plain_names = [name for name in by_name if name[-7:-4].isdecimal() and name[-8] == "/"]
        assert all(by_name[name] == int(name[-7:-4]) for name in plain_names)
        assert limit is not None or len(plain_names) == 120


# A name -------------------------------------------------------------------------------------


PIECES = ("photos", "cifar10", ":", ":train", "+", "+digits", ":alpha", "=", "=1", "./", "\0",
          "\x1b[2J", "\udcff", "~nobody", "nan", "-1", "1e999", "x", " ", "é", "a" * 300,
          "/dev/null", "/dev/zero", "/proc/self/mem", "/proc/self/environ")  # fmt: skip


@pytest.mark.parametrize("seed", range(BATCHES))
@pytest.mark.usefixtures("in_tmp")
def test_names_that_are_no_data(seed: int) -> None:
    rng = np.random.default_rng([6, seed])
    for _ in range(CASES):
        text = "".join(rng.choice(PIECES, rng.integers(1, 6)))
        found = outcome(lambda text=text: open_dataset(text, limit=2))
        if isinstance(found, Dataset):
            check_whole(found)
            assert text.startswith("photos")
