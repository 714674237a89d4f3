"""Image files: of any format by Pillow, and of more than 8 bits written by hand."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

GRAY, GRAY_ALPHA, RGB, RGBA = 0, 4, 2, 6


def saved(image, kind="PNG", **options):
    """Return the file of an image, or of its pixels."""
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(name, data):
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png16(values, kind=GRAY, extra=b""):
    """Return a PNG of 16 bits, written by hand."""
    height, width = values.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def tiff(values, *, bits, kind=1, photometric=1, planar=1):
    """Return an uncompressed little-endian TIFF with one strip of the bytes of `values`."""
    height, width = values.shape[-2:] if planar == 2 else values.shape[:2]
    samples = 1 if values.ndim == 2 else 3
    data = values if isinstance(values, bytes) else values.tobytes()
    tags = {256: width, 257: height, 259: 1, 262: photometric, 277: samples, 278: height}
    tags |= {279: len(data), 284: planar}
    entries = {tag: (4, 1, value) for tag, value in tags.items()}
    first = 8 + 2 + 12 * (len(entries) + 3) + 4
    several = struct.pack("<3H", bits, bits, bits) + struct.pack("<3H", kind, kind, kind)
    if samples == 1:
        entries |= {258: (3, 1, bits), 339: (3, 1, kind)}
    else:
        entries |= {258: (3, 3, first), 339: (3, 3, first + 6)}
    start = first + len(several)
    if planar == 2:
        each = len(data) // 3
        spots = struct.pack("<3I", *(start + 24 + i * each for i in range(3)))
        several += spots + struct.pack("<3I", each, each, each)
        entries |= {273: (4, 3, start), 279: (4, 3, start + 12)}
    else:
        entries[273] = (4, 1, start)
    ifd = b"".join(struct.pack("<HHII", tag, *entry) for tag, entry in sorted(entries.items()))
    head = struct.pack("<2sHIH", b"II", 42, 8, len(entries))
    return head + ifd + struct.pack("<I", 0) + several + data
