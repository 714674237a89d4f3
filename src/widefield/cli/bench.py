"""`widefield bench`."""

import inspect
from importlib import import_module

from widefield.cli.help import grouped
from widefield.cli.output import print_json, print_line
from widefield.core.names import check_name

KINDS = ("step", "head", "views", "probe")


@grouped
def bench(
    kind: str,
    /,
    *,
    encoder: str | None = None,
    batch_size: int | None = None,
    image_size: int | None = None,
    rows: int | None = None,
    rounds: int | None = None,
    methods: list[str] | None = None,
    views: str | None = None,
    json: bool = False,
) -> None:
    """Measure this machine: step, head, views or probe, as ratios.

    Parameters
    ----------
    kind
        step: a training step beside the bare encoder; head: rows on disk at 10^4 to 10^7
        examples beside rows in memory, DIET's dense head and a memory map; views: images per
        second beside kornia and torchvision; probe: ours beside scikit-learn's.
    encoder
        Step, head: encoder.
    batch_size
        Step, head: examples a step; views: images a batch.
    image_size
        Step, head, views: side of the images, pixels.
    rows
        Step: examples, and so rows of the per-example head.
    rounds
        Step, head: turns that each contestant takes; medians are over these.
    methods
        Step: methods, all by default: --methods byol --methods byol-both-directions.
    views
        Step: view policy.
    json
        Print one JSON object.
    """
    check_name("bench", kind, KINDS)
    options = {
        "encoder": encoder,
        "batch_size": batch_size,
        "image_size": image_size,
        "rows": rows,
        "rounds": rounds,
        "methods": methods,
        "views": views,
    }
    given = {name: value for name, value in options.items() if value is not None}
    run = import_module(f"widefield.bench.{kind}").bench
    taken = [*(name for name in options if name in inspect.signature(run).parameters), "json"]
    for name, value in given.items():
        if name not in taken:
            takes = ", ".join(map(_option, taken))
            raise ValueError(f"bench {kind} takes no {_option(name)}: it takes {takes}")
        if isinstance(value, int) and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}")

    from widefield.core.hardware import choose_device, keep_freed_memory, machine

    keep_freed_memory()
    result = {**run(**given), "machine": machine(choose_device("auto"))}
    if json:
        print_json(result)
        return
    for name, ratio in result["ratios"].items():
        print_line(f"{name:>28}  {ratio:8.2f}")
    for name, value in result["values"].items():
        print_line(
            f"{name:>28}  {value:.4g}" if isinstance(value, float) else f"{name:>28}  {value}"
        )
    for row in result.get("table", ()):
        print_line("  ".join(f"{name} {value:.4g}" for name, value in row.items() if value))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
