"""Seconds of things run turn by turn, and their ratios."""

import statistics
from collections.abc import Callable, Mapping

import torch

TOLERANCE = 0.05
"""How far the medians of the first and of the second half of the rounds may differ."""


def turn_by_turn(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    device: torch.device,
    clock: Callable[[], float],
) -> dict[str, list[float]]:
    """Return the seconds that each contestant took in each round, after three rounds to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(3 + rounds):
        for name, run in contestants.items():
            began = clock()
            run()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds[name].append(clock() - began)
    return {name: times[3:] for name, times in seconds.items()}


def steady_ratio(name: str, above: list[float], below: list[float], tolerance: float) -> float:
    """Return the median of the rounds' own ratios.

    Raises:
        ValueError: fewer than two rounds, or the medians of the first and of the second half of
            the rounds differ by more than `tolerance`.
    """
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    half = len(ratios) // 2
    if half == 0:
        raise ValueError("the two halves of the rounds are compared: give 2 rounds or more")
    first, second = statistics.median(ratios[:half]), statistics.median(ratios[half:])
    if max(first, second) > (1 + tolerance) * min(first, second):
        raise ValueError(
            f"{name} is {first:.3g} in the first half of the rounds and {second:.3g} in the "
            f"second, more than {tolerance:.0%} apart: measure again on an idle machine, or in "
            "more rounds"
        )
    return statistics.median(ratios)
