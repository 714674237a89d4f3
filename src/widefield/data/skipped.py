"""Files that cannot be read: the record, the note, and the limit of their number."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from widefield.core.names import printable

EXCLUDED = "excluded"
"""Reason of an example that was left out on request."""
# Chosen by hand: a few damaged files are normal, and a wrong folder or format has more.
_MAX_SKIPPED = 0.05


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that could not be read or was excluded, and why."""

    path: str
    reason: str


def skipped_note(skipped: Sequence[Skipped]) -> list[str]:
    """Return a note with the number of unreadable files and the first of them."""
    if not skipped:
        return []
    first = skipped[0]
    return [
        f"{len(skipped)} unreadable files skipped, the first '{printable(first.path)}': "
        f"{first.reason}"
    ]


def check_skipped(failed: Collection[Skipped], files: int) -> None:
    """Check that at most 5 % of the files failed."""
    if len(failed) > _MAX_SKIPPED * files:
        first = min(failed, key=lambda skipped: skipped.path)
        raise ValueError(
            f"{len(failed)} of {files} files cannot be read, more than {_MAX_SKIPPED:.0%}; "
            f"remove or repair them (first: '{first.path}': {first.reason})"
        )
