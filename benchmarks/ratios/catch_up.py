"""What rows cost that catch up on missed steps, beside a loop over the terms of their sums.

Run by `python -m benchmarks.ratios.catch_up --json benchmarks/results/bench_catch_up.json`.
"""

import statistics
import time
from functools import partial

import torch

from widefield.core.hardware import choose_device
from widefield.head import LazyAdamW, MemoryStorage, PerExampleHead, RowState

from .command import Result, command
from .timing import TOLERANCE, steady_ratio, turn_by_turn

MISSED = (1, 10, 1000)
_BEFORE = 1000  # steps before the rows were last seen


def bench(
    *,
    batch_size: int = 256,
    dim: int = 128,
    rounds: int = 200,
    missed: tuple[int, ...] = MISSED,
    tolerance: float = TOLERANCE,
) -> Result:
    """Measure seconds to catch up on `missed` steps of AdamW, and of one kernel after another.

    Returns:
        `ratios`: for each of `missed` the median over the rounds of the seconds of a loop over the
        terms, over those of `LazyAdamW.catch_up`; `values`: its median seconds and the settings.

    Raises:
        ValueError: a ratio differs by more than `tolerance` between the halves of the rounds.
    """
    device = choose_device("auto")
    ratios, values = {}, {}
    for steps in missed:
        optimizer, state = _rows(batch_size, dim, steps, device)
        contestants = {
            "merged": partial(optimizer.catch_up, state),
            "loop": partial(_by_term, optimizer, state),
        }
        clock = time.process_time if device.type == "cpu" else time.perf_counter
        seconds = turn_by_turn(contestants, rounds, device, clock)
        name = f"loop/merged@{steps}"
        ratios[name] = steady_ratio(name, seconds["loop"], seconds["merged"], tolerance)
        values[f"seconds@{steps}"] = statistics.median(seconds["merged"])
    threads = torch.get_num_threads()
    settings = {"batch_size": batch_size, "dim": dim, "threads": threads}
    return {"ratios": ratios, "values": {**values, **settings}}


def _rows(
    batch_size: int, dim: int, missed: int, device: torch.device
) -> tuple[LazyAdamW, RowState]:
    """Return rows on `device` that were last seen `missed` steps ago, and their optimizer."""
    storage = MemoryStorage(batch_size, dim, seed=0, device=device)
    optimizer = LazyAdamW(PerExampleHead(batch_size, dim, storage=storage))
    for _ in range(_BEFORE + missed):
        optimizer.step()
    row = torch.rand(batch_size, dim, generator=torch.Generator().manual_seed(0)).to(device)
    last = torch.full((batch_size,), _BEFORE)
    return optimizer, RowState(row, 0.1 * row, 0.01 * row, last)


def _by_term(optimizer: LazyAdamW, state: RowState) -> RowState:
    """Return the caught-up rows, from a loop over all terms of the sum."""
    history, row, last = optimizer.head.history, state.row, state.last
    (beta1, beta2), eps = (optimizer.defaults[name] for name in ("betas", "eps"))
    gap = history.steps - last
    terms = min(int(gap.max()), optimizer.horizon(row.dtype))
    weights, log_shrinks = optimizer._terms(last, terms)
    weights, shrinks = (x[..., None].to(row) for x in (weights, log_shrinks.exp()))
    root, total = state.v.sqrt(), torch.zeros_like(row)
    for weight, shrink in zip(weights, shrinks, strict=True):
        total.addcdiv_(weight.expand_as(root), torch.mul(root, shrink).add_(eps))
    fades = history.log_decay(last).exp(), beta1 ** gap.double(), beta2 ** gap.double()
    decay, fade1, fade2 = (fade[:, None].to(row) for fade in fades)
    return RowState(
        decay * row - torch.where(state.m == 0, 0.0, total * state.m),
        fade1 * state.m,
        fade2 * state.v,
        torch.full_like(last, history.steps),
    )


if __name__ == "__main__":
    command(bench)
