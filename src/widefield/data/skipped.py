"""Files that cannot be read: what is kept and told of them, and how many are too many."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from widefield.core.names import printable

_MOST_SKIPPED = 0.05


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that could not be used."""

    path: str
    reason: str


def skipped_note(skipped: Sequence[Skipped]) -> list[str]:
    """Say how many files cannot be read, and name the first."""
    if not skipped:
        return []
    first = skipped[0]
    return [
        f"{len(skipped)} unreadable files skipped, the first '{printable(first.path)}': "
        f"{first.reason}"
    ]


def refuse_many(failed: Collection[Skipped], files: int) -> None:
    """Refuse data of which more than 1 in 20 files cannot be read.

    Raises:
        ValueError: they are that many.
    """
    if len(failed) > _MOST_SKIPPED * files:
        first = min(failed, key=lambda skipped: skipped.path)
        raise ValueError(
            f"{len(failed)} of {files} files cannot be read, more than {_MOST_SKIPPED:.0%}; "
            f"remove or repair them (first: '{first.path}': {first.reason})"
        )
