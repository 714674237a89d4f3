"""Floors of a score, above which features show that something was learned."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

FLOORS = {
    "pixels": "raw pixels",
    "random": "an untrained encoder",
    "majority": "the commonest class",
    "mean": "the mean prediction",
}
"""Floor -> its description."""


class _HasAccuracy(Protocol):
    @property
    def accuracy(self) -> float: ...


E = TypeVar("E")
S = TypeVar("S", bound=_HasAccuracy)


def floors(
    score: Callable[[E], Mapping[str, S]],
    *,
    pixels: E,
    untrained: Iterable[E],
    majority: Mapping[str, S] | None = None,
) -> dict[str, dict[str, S]]:
    """Return floor -> task -> score.

    Args:
        score: encoder -> task -> score, with an `accuracy`.
        pixels: raw pixels in place of an encoder.
        untrained: the architecture with each usual initialization, of one or more seeds; the best
            counts, task by task.
        majority: scores of the commonest class; None to leave this floor out.

    Example:
        >>> from types import SimpleNamespace
        >>> score = lambda share: {"class": SimpleNamespace(accuracy=share)}
        >>> floors(score, pixels=0.2, untrained=[0.1, 0.3])["random"]["class"].accuracy
        0.3
    """
    pixel_scores = dict(score(pixels))
    candidates = [score(encoder) for encoder in untrained]
    best = {
        task: max((scores[task] for scores in candidates), key=lambda s: s.accuracy)
        for task in candidates[0]
    }
    result = {"pixels": pixel_scores, "random": best}
    return result if majority is None else result | {"majority": dict(majority)}
