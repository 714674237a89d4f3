"""Floors of a score: what features have to beat to show that something was learned."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

FLOORS = {
    "pixels": "raw pixels",
    "random": "an untrained encoder",
    "majority": "the commonest class",
}
"""Floors, and what each is in words."""


class _Scored(Protocol):
    @property
    def accuracy(self) -> float: ...


E = TypeVar("E")
S = TypeVar("S", bound=_Scored)


def floors(
    score: Callable[[E], Mapping[str, S]],
    *,
    pixels: E,
    untrained: Iterable[E],
    majority: Mapping[str, S] | None = None,
) -> dict[str, dict[str, S]]:
    """Return floor -> task -> score.

    Args:
        score: encoder -> task -> score, by `accuracy`.
        pixels: raw pixels in the place of an encoder.
        untrained: the architecture from each of its usual initializations, maybe drawn several
            times; the best counts, task by task.
        majority: scores of the commonest class; without them the floor is left out.

    Example:
        >>> from types import SimpleNamespace
        >>> score = lambda share: {"class": SimpleNamespace(accuracy=share)}
        >>> floors(score, pixels=0.2, untrained=[0.1, 0.3])["random"]["class"].accuracy
        0.3
    """
    found = {"pixels": dict(score(pixels))}
    draws = [score(encoder) for encoder in untrained]
    found["random"] = {
        task: max((scores[task] for scores in draws), key=lambda s: s.accuracy) for task in draws[0]
    }
    return found if majority is None else found | {"majority": dict(majority)}
