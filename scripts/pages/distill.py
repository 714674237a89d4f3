"""Common starts and what they cost, and students of a teacher: docs/start.md."""

from pages.format import percent, read, table


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


def distill() -> str:
    """Return the linear-probe accuracy of the teacher and of each student."""
    result = read("distill")
    seconds = {name: f"{value:.0f}" for name, value in result["processor_seconds"].items()}
    rows = [
        [name, percent(accuracy), seconds.get(name, "")]
        for name, accuracy in result["accuracy"].items()
    ]
    return table(["encoder", "CIFAR-10, %", "CPU seconds"], rows)
