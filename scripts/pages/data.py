"""Tables of decoders, of the costs of data of any number of examples, and of copies found."""

from pages.format import ratio, read, table, whole

_PIXELS, _ENCODED = 224 * 224 * 3, 110_000
"""Bytes of an image of 224 pixels, decoded and as a JPEG file of ImageNet."""
_ROW = 128 * 4 * 3
"""Bytes of a row of a head of width 128 with its two moments."""
_SIZES = (10**5, 10**6, 10**7, 10**8)


def decoders() -> str:
    """Return the table of decoders of JPEG files."""
    found = read("decoders")["rows"]
    scaled = {row["decoder"]: ratio(row["over_pillow"]) for row in found if row["scaled"]}
    rows = [
        (
            row["decoder"],
            whole(row["images_per_second"]),
            ratio(row["over_pillow"]),
            scaled.get(row["decoder"], "not possible"),
        )
        for row in found
        if not row["scaled"]
    ]
    return table(("decoder", "images/s, whole", "over Pillow", "over Pillow, scaled to 1/2"), rows)


def reading() -> str:
    """Return the table of ratios of listing and reading data to the bare calls."""
    opened, decoded = read("bench_data"), read("bench_decoder")
    files = whole(opened["values"]["files"])
    rows = [
        (f"listing {files} files, seconds", "scandir and stat", opened["ratios"]["index/scandir"]),
        (
            f"decoded at {opened['values']['image_size']} pixels, images/s",
            "plain memory map",
            opened["ratios"]["cache/memmap"],
        ),
    ]
    beside = {"decoder": "bare decoder", "torchvision": "decoder and RandomResizedCrop"}
    for name, value in decoded["ratios"].items():
        ours, other = name.split("/")
        rows.append((f"encoded at {ours.partition('@')[2]} pixels, images/s", beside[other], value))
    return table(("", "beside", "ratio"), [(what, to, ratio(value)) for what, to, value in rows])


def scale() -> str:
    """Return the table of costs by the number of examples; those not measured are extrapolated."""
    measured = {row["examples"]: row for row in read("scale")["rows"]}
    largest = measured[max(measured)]
    rows = []
    for n in _SIZES:
        factor = 1 if n in measured else n / largest["examples"]
        row = measured.get(n, largest)
        cells = [f"10^{len(str(n)) - 1}" + ("" if n in measured else ", extrapolated")]
        cells.append(f"{factor * row['open_seconds']:.1f} s")
        cells += [_gb(factor * row[name]) for name in ("open_bytes", "manifest_bytes")]
        cells.append(f"{factor * row['shuffle_seconds']:.2f} s")
        cells += [_gb(n * each) for each in (_ROW, _PIXELS, _ENCODED)]
        rows.append(cells)
    head = ["examples", "open", "memory", "table on disk", "shuffle", "rows", "decoded", "encoded"]
    return table(head, rows)


def _gb(size: float) -> str:
    return f"{size / 1e9:,.2f} GB" if size < 1e10 else f"{size / 1e9:,.0f} GB"


def copies() -> str:
    """Return the table of the share of near-copies that is found, by how they were changed."""
    rates = read("near_copies")["rates"]
    rows = [(name, f"{100 * rate:.0f} %") for name, rate in rates.items()]
    return table(("change", "found"), rows)


def copies_seconds() -> str:
    """Return the sentence on the time of a search for near-copies."""
    values = read("near_copies")["values"]
    return (
        f"Among {values['fitted']:,} examples, {values['scored']} are compared, in "
        f"{values['seconds']:.0f} processor seconds."
    )
