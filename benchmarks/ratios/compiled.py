"""Training steps with a compiled encoder beside the same steps without.

    python -m benchmarks.ratios.compiled --encoder resnet-tiny \
        --json benchmarks/results/bench_compiled_resnet-tiny.json

The generated code is kept in a temporary folder, so that nothing of an earlier call is used.
"""

import os
import statistics
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import torch

from widefield.config.recipes import make_recipe
from widefield.core.hardware import choose_device
from widefield.data import Loader
from widefield.encoders import EncoderSettings
from widefield.train.build import check_compile

from .command import Result, command
from .step import method_step, random_images
from .timing import TOLERANCE, steady_ratio, turn_by_turn

METHODS = ["view-contrast", "s-diet"]
"""Methods with a pass of two views and of one."""


def bench(
    *,
    encoder: str = "auto",
    batch_size: int = 256,
    image_size: int = 32,
    rows: int = 10_000,
    rounds: int = 15,
    methods: list[str] | None = None,
    modes: list[str] | None = None,
    tolerance: float = TOLERANCE,
) -> Result:
    """Measure seconds per step with and without `compile`, turn by turn in one process.

    On a CPU they are seconds of the processor, summed over threads. `methods` are view-contrast
    and s-diet, and `modes` default, unless said otherwise.

    Returns:
        `ratios`: steps a second, as multiples of those without; `values`: median seconds, and
        `compile_seconds` that the first step took longer than the second.

    Raises:
        ValueError: an unknown name, a mode that this machine cannot compile, or a ratio that
            differs by more than `tolerance` between the halves of the rounds.
    """
    device = choose_device("auto")
    encoder = EncoderSettings(name=encoder).resolved(device).name
    dataset = random_images(rows, image_size)
    loader = Loader(dataset, batch_size=batch_size, device=device)
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    ratios: dict[str, float] = {}
    values: dict[str, Any] = {"encoder": encoder, "batch_size": batch_size}
    values |= {"image_size": image_size, "rows": rows}
    for method in methods or METHODS:
        torch.compiler.reset()  # else one method may use what was compiled for another
        steps: dict[str, Callable[[], None]] = {}
        for mode in ("none", *(modes or ["default"])):
            settings = {"encoder": encoder, "batch_size": batch_size, "compile": mode}
            recipe = make_recipe(method=method, **settings)
            check_compile(recipe, device)
            steps[mode] = method_step(recipe, loader, dataset, device)
            if mode != "none":
                values[f"{method}_{mode}_compile_seconds"] = _first_seconds(steps[mode])
        seconds = turn_by_turn(steps, rounds, device, clock)
        values |= {f"{method}_{mode}_seconds": statistics.median(s) for mode, s in seconds.items()}
        for mode in list(steps)[1:]:
            name = f"{method}_{mode}/none"
            ratios[name] = steady_ratio(name, seconds["none"], seconds[mode], tolerance)
    return {"ratios": ratios, "values": values}


def _first_seconds(step: Callable[[], None]) -> float:
    """Return how much longer the first step takes than the second."""
    times = [time.perf_counter()]
    with (
        TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=folder),
    ):
        for _ in range(2):
            step()
            times.append(time.perf_counter())
    return times[1] - times[0] - (times[2] - times[1])


if __name__ == "__main__":
    command(bench)
