"""Common starts and what they cost: docs/start.md."""

from pages.format import read, table


def common_starts() -> str:
    """Return weights, license and the cost of a run of each start."""
    rows = [
        [
            f"`{name}`",
            f"{run['weights'] / 1e6:.1f}",
            f"{run['features']:,}",
            str(run["trained_at"]),
            run["license"],
            f"{run['host_bytes'] / 1e9:.1f}",
            f"{run['seconds_per_1000']:.0f}",
        ]
        for name, run in read("common_starts")["starts"].items()
    ]
    columns = ["start", "million weights", "features", "trained at, pixels", "license"]
    return table([*columns, "memory, GB", "CPU seconds for 1,000 images"], rows)
