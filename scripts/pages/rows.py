"""Measurements of the per-example head: docs/head.md."""

from typing import Any

from pages.format import RESULTS, ratio, read, table, whole


def head() -> str:
    """Return a training step with rows on disk, for each encoder that was measured."""
    files = sorted(RESULTS.glob("bench_head_*.json"))
    return "\n\n".join(_head(read(file.stem)) for file in files)


def _head(result: dict[str, Any]) -> str:
    values = result["values"]
    encoder = values["encoder"]
    ratios = ", ".join(f"{name} {ratio(value)}" for name, value in result["ratios"].items())
    about = (
        f"**{encoder}**: `python -m benchmarks.ratios.head --encoder {encoder}`, batches of "
        f"{values['batch_size']} images of side {values['image_size']}, m = "
        f"{values['projector_dim']}. Ratios: {ratios}. With rows in host memory a step takes "
        f"{_milliseconds(values['host_seconds'])} ms. DIET's dense head is measured where its "
        "rows and logits, with gradients and moments, need less than "
        f"{values['diet_limit_bytes'] / 1e9:.1f} GB, 25 % of the memory."
    )
    rows = [
        (
            whole(row["n"]),
            _milliseconds(row["disk_seconds"]),
            f"{row['disk_bytes'] / 1e6:.2f}",
            "" if row["diet_seconds"] is None else _milliseconds(row["diet_seconds"]),
            "" if row["diet_bytes"] is None else whole(row["diet_bytes"] / 1e6),
        )
        for row in result["table"]
    ]
    titles = ("examples", "rows on disk: ms", "device MB", "DIET: ms", "device MB")
    return f"{about}\n\n{table(titles, rows)}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.0f}"


def stores() -> str:
    """Return how many rows per second each store reads and writes."""
    rates: dict[tuple[int, int], dict[tuple[str, str], float]] = {}
    for r in read("store_comparison")["results"]:
        shape = rates.setdefault((r["rows"], r["floats"]), {})
        shape[r["store"], r["cache"]] = r["rows_per_second"] / 1000
    names = list(dict.fromkeys(store for store, _ in next(iter(rates.values()))))
    lead = min(
        by_store["journal", cache] / by_store[other, cache]
        for by_store in rates.values()
        for other in ("lmdb", "sqlite")
        for cache in ("warm", "cold")
    )
    about = (
        "`benchmarks/results/store_comparison.json`: thousand rows per second, read and "
        "written back in random order, warm / cold. `map` is a plain memory map without recovery, "
        "an upper bound. `journal` is ours: it can restore the last checkpoint and is at least "
        f"{lead:.1f} times as fast as LMDB and SQLite."
    )
    rows = [
        (
            f"{count} x {floats}",
            *(f"{by_store[s, 'warm']:.0f} / {by_store[s, 'cold']:.1f}" for s in names),
        )
        for (count, floats), by_store in rates.items()
    ]
    return f"{about}\n\n{table(('rows x floats', *names), rows)}"


def plans() -> str:
    """Return the estimates of `widefield plan` and what runs took."""
    report = read("plan_check")
    seconds = [
        [turn["ratio"]["epoch_seconds"] for turn in case["turns"]]
        for case in report["cases"].values()
    ]
    lowest, highest = min(map(min, seconds)), max(map(max, seconds))
    about = (
        f"`{report['command']}`: measured divided by planned, median of the turns. A turn plans in "
        "one process and runs in the next. Seconds per epoch of single turns vary with the "
        f"machine, by a factor of {ratio(lowest)} to {ratio(highest)}."
    )
    rows = [
        (
            name,
            str(len(case["turns"])),
            ratio(case["ratio"]["host_bytes"]),
            ratio(case["ratio"]["epoch_seconds"]),
        )
        for name, case in report["cases"].items()
    ]
    return f"{about}\n\n{table(('run', 'turns', 'host memory', 'seconds an epoch'), rows)}"
