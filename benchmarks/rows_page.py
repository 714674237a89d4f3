"""Write what `benchmarks/results` says of the per-example head into docs/rows.md.

    python benchmarks/rows_page.py

Everything from the heading *Measured* on is written anew; a test compares.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "rows.md", ROOT / "benchmarks" / "results"
HEADING = "## Measured\n"


def measured() -> str:
    """The part of the page below its heading."""
    parts = [
        "Each table names the command that makes it.",
        *(_head(_read(path.stem)) for path in sorted(RESULTS.glob("bench_head_*.json"))),
        _stores(),
        _compact(),
        _plans(),
        _cosines(),
    ]
    return "\n\n".join(parts) + "\n"


def _head(found: dict[str, Any]) -> str:
    values, ratios = found["values"], found["ratios"]
    encoder = values["encoder"]
    said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return _section(
        f"A training step, {encoder}",
        f"`widefield bench head --encoder {encoder} --json`, batches of {values['batch_size']} "
        f"images of side {values['image_size']}, m = {values['projector_dim']}: {said}. With rows "
        f"in host memory a step takes {1000 * values['host_seconds']:.0f} ms. DIET's dense head "
        "is there while it and its logits, each fourfold, take under "
        f"{values['diet_limit_bytes'] / 1e9:.1f} GB, a quarter of the memory.",
        ("examples", "rows on disk: ms", "device MB", "DIET: ms", "device MB"),
        (
            (
                f"{row['n']:,}",
                f"{1000 * row['disk_seconds']:.0f}",
                f"{row['disk_bytes'] / 1e6:.2f}",
                "" if row["diet_seconds"] is None else f"{1000 * row['diet_seconds']:.0f}",
                "" if row["diet_bytes"] is None else f"{row['diet_bytes'] / 1e6:,.0f}",
            )
            for row in found["table"]
        ),
    )


def _stores() -> str:
    rates: dict[tuple[int, int], dict[tuple[str, str], float]] = {}
    for r in _read("store_comparison")["results"]:
        shape = rates.setdefault((r["rows"], r["floats"]), {})
        shape[r["store"], r["cache"]] = r["rows_per_second"] / 1000
    stores = list(dict.fromkeys(store for store, _ in next(iter(rates.values()))))
    lead = min(
        found["journal", cache] / found[other, cache]
        for found in rates.values()
        for other in ("lmdb", "sqlite")
        for cache in ("warm", "cold")
    )
    return _section(
        "The store beside others",
        "`python benchmarks/store_comparison.py --json FILE`: thousand rows a second, read and "
        "written back at random, warm / cold. `map` is a plain memory map without recovery, the "
        "limit of the machine; `journal` is ours, which comes back to the last checkpoint and is "
        f"at least {lead:.1f} times as fast as LMDB and SQLite.",
        ("rows x floats", *stores),
        (
            (
                f"{rows} x {floats}",
                *(f"{found[s, 'warm']:.0f} / {found[s, 'cold']:.1f}" for s in stores),
            )
            for (rows, floats), found in rates.items()
        ),
    )


def _compact() -> str:
    report = _read("compact_rows")
    variants = report["variants"]
    tasks = [task for task in variants["float32"] if task != "bytes_a_row"]
    return _section(
        "Smaller moments, and accuracy",
        f"`{report['command']} --json FILE`: linear probes on the test file, %, means over the "
        "seeds, and differences from float32, seed by seed, with their 95 % intervals.",
        (
            "moments",
            "bytes a row",
            "seeds",
            *(f"{t}{what}" for t in tasks for what in ("", ", difference")),
        ),
        (
            (
                name,
                str(found["bytes_a_row"]),
                str(found[tasks[0]]["n"]),
                *(
                    cell
                    for t in tasks
                    for cell in (
                        f"{found[t]['mean']:.1f}",
                        f"{found[t]['minus_float32']:+.1f} ± {found[t]['half_width']:.1f}"
                        if name != "float32"
                        else "",
                    )
                ),
            )
            for name, found in variants.items()
        ),
    )


def _plans() -> str:
    report = _read("plan_check")
    seconds = [
        [turn["ratio"]["epoch_seconds"] for turn in case["turns"]]
        for case in report["cases"].values()
    ]
    turns = len(seconds[0])
    lowest, highest = min(map(min, seconds)), max(map(max, seconds))
    return _section(
        "Plans beside runs",
        f"`{report['command']}`: measured over planned, median of {turns} turns. A turn plans in "
        "one process and runs in the next; single turns differ as the machine does from minute to "
        f"minute, by a factor of {lowest:.2f} to {highest:.2f} in an epoch's seconds.",
        ("run", "host memory", "seconds an epoch"),
        (
            (name, f"{case['ratio']['host_bytes']:.2f}", f"{case['ratio']['epoch_seconds']:.2f}")
            for name, case in report["cases"].items()
        ),
    )


def _cosines() -> str:
    report = _read("gradient_cosine")
    return _section(
        "The batch's gradient beside the full one",
        f"`{report['command']} --json FILE`: cosine of the gradients of batch and full "
        f"cross-entropy at random initialisation, {report['encoder']}, mean of "
        f"{report['batches']} batches, beside S-DIET (2025) on CIFAR-100. The projector is thrown "
        "away after training.",
        ("batch", "encoder", "encoder and projector", "paper"),
        (
            (
                str(r["batch_size"]),
                f"{r['encoder']:.4f}",
                f"{r['encoder and projector']:.4f}",
                f"{r['paper_cifar100']:.4f}",
            )
            for r in report["results"]
        ),
    )


def _section(title: str, about: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    cells = [head, ("---",) * len(head), *rows]
    return f"### {title}\n\n{about}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def page() -> str:
    """The whole page, with the numbers of today."""
    return PAGE.read_text().partition(HEADING)[0] + HEADING + "\n" + measured()


if __name__ == "__main__":
    PAGE.write_text(page())
