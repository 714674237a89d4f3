"""Which runs of labs the tests look at."""

from collections.abc import Iterable

LONG = ("sparse-coding", "diet-toy", "noise-helps")
"""Labs that take seconds at scale tiny; the others take one second or less."""


def runs_of(labs: Iterable[str]) -> list[tuple[str, int]]:
    """Return a run of each lab, and a second one, of another seed, of those that are short."""
    return [(name, seed) for name in labs for seed in (0, 1) if seed == 0 or name not in LONG]
