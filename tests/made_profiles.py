"""ICC profiles (version 2.4), written by hand."""

import struct

D50 = (0.9642, 1.0, 0.8249)

# Columns of red, green and blue in XYZ of D50, and gamma.
ADOBE_RGB = (
    ((0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457)),
    2.19921875,
)
DISPLAY_P3 = (
    ((0.51512, 0.24120, -0.00105), (0.29198, 0.69225, 0.04189), (0.15710, 0.06657, 0.78407)),
    2.2,
)
PROPHOTO = (
    ((0.79767, 0.28804, 0.0), (0.13519, 0.71187, 0.0), (0.03134, 0.00009, 0.82491)),
    1.8,
)
SRGB_COLUMNS = (
    (0.43607, 0.22249, 0.01392),
    (0.38515, 0.71687, 0.09708),
    (0.14307, 0.06061, 0.71410),
)
LINEAR_SRGB = (SRGB_COLUMNS, 1.0)


def s15(*values):
    return b"".join(struct.pack(">i", round(value * 65_536)) for value in values)


def xyz(values):
    return b"XYZ \0\0\0\0" + s15(*values)


def gamma_curve(gamma):
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256))


def table_curve(values):
    """A curve of 16-bit values for inputs 0 to 1, evenly spaced."""
    return b"curv\0\0\0\0" + struct.pack(f">I{len(values)}H", len(values), *values)


def icc(space, tags, *, pcs=b"XYZ ", kind=b"mntr"):
    """Return a profile of colors `space` with these tags."""
    tags = {b"wtpt": xyz(D50), b"cprt": b"text\0\0\0\0\0", b"desc": description("made")} | tags
    table, body, start = b"", b"", 128 + 4 + 12 * len(tags)
    for name, data in tags.items():
        table += name + struct.pack(">II", start + len(body), len(data))
        body += data + bytes(-len(data) % 4)
    head = struct.pack(">I4sI4s4s4s", start + len(body), b"lcms", 0x02400000, kind, space, pcs)
    head += struct.pack(">6H4s", 2020, 1, 1, 0, 0, 0, b"acsp") + bytes(28) + s15(*D50)
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


def description(name):
    text = name.encode() + b"\0"
    return b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78)


def rgb_profile(columns, curve):
    """A profile of three primaries; `curve` is a gamma or the data of a curve."""
    curve = curve if isinstance(curve, bytes) else gamma_curve(curve)
    tags = {name + b"XYZ": xyz(c) for name, c in zip((b"r", b"g", b"b"), columns, strict=True)}
    return icc(b"RGB ", tags | {name + b"TRC": curve for name in (b"r", b"g", b"b")})


def gray_profile(gamma):
    return icc(b"GRAY", {b"kTRC": gamma_curve(gamma)})


def cmyk_profile(lab):
    """A profile of inks: `lab` returns L, a, b of ink amounts (C, M, Y, K), each 0 or 1."""
    inks = [[i >> 3 & 1, i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(16)]
    grid = bytes(
        value
        for ink in inks
        for value in (round(lab(*ink)[0] * 2.55), *(round(x) + 128 for x in lab(*ink)[1:]))
    )
    ramp = bytes(range(256))
    head = b"mft1\0\0\0\0" + bytes([4, 3, 2, 0]) + s15(1, 0, 0, 0, 1, 0, 0, 0, 1)
    return icc(b"CMYK", {b"A2B0": head + 4 * ramp + grid + 3 * ramp}, pcs=b"Lab ", kind=b"prtr")
