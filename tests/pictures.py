"""A grammar of image files: sound ones with the picture that must be seen, and damaged ones."""

import random
import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from made_images import GRAY, GRAY_ALPHA, RGB, RGBA, png16, saved, tiff
from widefield.probes import Pixels

Rng = np.random.Generator
Check = Callable[[Path], str | None]
"""Returns how the file of features that a call wrote is wrong, in words; None if it is right."""

Picture = NDArray[np.float64] | None
"""What must be seen, [H, W, 3] from 0 to 255; None where it is not known."""


def pattern(rng: Rng, channels: int) -> NDArray[np.float64]:
    """Return a picture [H, W, C] in [0, 1] that is no mirror image of itself."""
    height, width = (int(side) for side in rng.integers(8, 40, 2))
    picture = rng.random((height, width, channels))
    picture[0, 0], picture[-1, -1] = 1, 0  # all of the range is used
    return picture


def levels(picture: NDArray[np.float64], max_value: float) -> NDArray[np.float64]:
    return np.round(picture * max_value)


def three(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    gray = picture if picture.ndim == 3 else picture[..., None]
    return np.broadcast_to(gray, (*gray.shape[:2], 3))


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
    """A JPEG or AVIF of one color, which no compression changes much."""
    color = rng.integers(0, 256, 3)
    values = np.broadcast_to(color, (16, 24, 3)).astype(np.uint8)
    kind = str(rng.choice(["JPEG", "AVIF"] if "AVIF" in Image.SAVE else ["JPEG"]))
    options = {"progressive": bool(rng.integers(2)), "subsampling": 0} if kind == "JPEG" else {}
    return saved(Image.fromarray(values), kind, quality=95, **options), values.astype(float)


def clear(rng: Rng) -> tuple[bytes, Picture]:
    """Opacity of every kind, shown on white."""
    values = levels(pattern(rng, 4), 255)
    colors, alpha = values[..., :3], values[..., 3:]
    if rng.integers(2):
        colors = np.broadcast_to(colors[..., :1], colors.shape)
        image = Image.merge(
            "LA", [Image.fromarray(x.astype(np.uint8)) for x in (colors[..., 0], alpha[..., 0])]
        )
    else:
        image = Image.fromarray(values.astype(np.uint8))
    kind = str(rng.choice(["PNG", "TIFF"] + ["WEBP"] * (image.mode == "RGBA")))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    shown = colors * (alpha / 255) + 255 - alpha
    return saved(image, kind, **options), shown


def paletted(rng: Rng) -> tuple[bytes, Picture]:
    """Indices into up to 256 colors, in 1 to 8 bits."""
    count = int(rng.choice([2, 4, 16, 256]))
    colors = rng.integers(0, 256, (count, 3))
    index = rng.integers(0, count, (12, 17))
    image = Image.fromarray(index.astype(np.uint8), mode=None)
    image = image.convert("P") if image.mode != "P" else image
    image = Image.frombytes("P", (17, 12), index.astype(np.uint8).tobytes())
    image.putpalette(colors.ravel().tolist())
    kind = str(rng.choice(["PNG", "BMP", "GIF", "TIFF"]))
    return saved(image, kind), colors[index].astype(float)


def deep_png(rng: Rng) -> tuple[bytes, Picture]:
    """A PNG of 16 bits, of which some number is in use."""
    bits, kind = int(rng.integers(8, 17)), int(rng.choice([GRAY, RGB, GRAY_ALPHA, RGBA]))
    colors = {GRAY: 1, GRAY_ALPHA: 1, RGB: 3, RGBA: 3}[kind]
    picture = pattern(rng, colors)
    values = levels(picture, 2**bits - 1)
    shown = values * 255 / (2**bits - 1)
    if kind in (GRAY_ALPHA, RGBA):
        alpha = rng.random((*values.shape[:2], 1))
        shown = shown * alpha + 255 * (1 - alpha)
        values = np.dstack([values, np.round(alpha * 65_535)])
    return png16(values, kind), three(shown)


def deep_tiff(rng: Rng) -> tuple[bytes, Picture]:
    """An uncompressed TIFF of wide values, of which some bits are in use; 0 may be white."""
    dtype, bits, kind = [("<u2", 16, 1), ("<u4", 32, 1), ("<i4", 32, 2), ("<f4", 32, 3)][
        rng.integers(4)
    ]
    max_value = 1.0 if dtype == "<f4" and rng.integers(2) else float(2 ** rng.integers(8, 17) - 1)
    values = pattern(rng, 1)[..., 0] * max_value
    values = (values if max_value == 1 else np.round(values)).astype(dtype)
    inverted = bool(rng.integers(2)) and dtype in ("<u2", "<f4")
    low, high = np.percentile(values, (0.1, 99.9))  # what becomes black and white
    shown = ((values.astype(float) - low) * 255 / (high - low)).clip(0, 255)
    content = tiff(values, bits=bits, kind=kind, photometric=0 if inverted else 1)
    return content, three(255 - shown if inverted else shown)


def text_format(rng: Rng) -> tuple[bytes, Picture]:
    """A PGM or PPM whose header says its largest value."""
    channels, max_value = int(rng.choice([1, 3])), int(rng.integers(1, 65_536))
    values = levels(pattern(rng, channels), max_value)
    height, width = values.shape[:2]
    wide = ">u2" if max_value > 255 else "u1"
    head = f"P{5 if channels == 1 else 6}\n{width} {height}\n{max_value}\n".encode()
    return head + values.astype(wide).tobytes(), three(values * 255 / max_value)


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


class Seen(NamedTuple):
    """What must be seen in an image."""

    picture: NDArray[np.float64]
    """[H, W, 3] from 0 to 255."""
    rounding: float


def strange_picture(folder: Path, rng: random.Random) -> tuple[list[str], Check | None]:
    """Put one image file into a folder; return a call that reads it, and what checks its output."""
    draw = np.random.default_rng(rng.randrange(2**32))
    make = SOUND[draw.integers(len(SOUND))]
    data, picture = make(draw)
    if rng.random() < 0.3:
        data, picture = rng.choice(DAMAGE)(draw, data), None
    (folder / "pictures").mkdir()
    (folder / "pictures" / f"a{rng.choice(SUFFIXES)}").write_bytes(data)
    seen = None if picture is None else Seen(picture, ROUNDING.get(make, 1))
    check = None if seen is None else partial(misread, seen=seen)
    return ["embed", "pixels", "pictures", "--out", "seen.npz"], check


def misread(features: Path, seen: Seen) -> str | None:
    """Return how a sound image was misread, in words; None if it was not."""
    found = 255 * np.load(features)["features"]
    expected = Pixels()(torch.from_numpy(seen.picture.transpose(2, 0, 1).copy())[None]).numpy()
    if found.shape != expected.shape:
        return f"misread: {found.shape[1]} values of {expected.shape[1]}"
    off = float(np.abs(found - expected).max())
    return f"misread: a pixel is off by {off:.1f} of 255" if off > seen.rounding + 0.01 else None
