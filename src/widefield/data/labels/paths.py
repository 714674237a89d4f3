"""Paths of labeled files -> names of examples."""

import os
from collections import defaultdict
from collections.abc import Collection, Sequence

from widefield.data.labels.text import nfc


def match_paths(
    paths: Collection[str], names: Sequence[str], base: str, source: str
) -> dict[str, str]:
    """Return path -> name of an example of the folder `base`, for the paths that match one.

    `source` is the name of the table of these paths in messages.
    """
    known = set(names)
    if known.issuperset(paths):
        return {path: path for path in paths}
    folder = os.path.expanduser(base)
    folders = (os.path.abspath(folder), os.path.realpath(folder))
    forms: dict[str, set[str]] = defaultdict(set)
    last_parts: dict[str, set[str]] = defaultdict(set)
    for name in known:
        forms[nfc(name)].add(name)
        last_parts[nfc(name).rsplit("/", 1)[-1]].add(name)
    name_of: dict[str, str] = {}
    # The exact path counts first, then other Unicode forms of it, then the last part alone: a
    # weaker match must not hide a stronger one.
    for provided in paths:
        path = provided if provided in known else provided.replace("\\", "/").strip()
        absolute = os.path.abspath(os.path.expanduser(path))
        candidates = [path, os.path.normpath(path)]
        candidates += [os.path.relpath(absolute, root) for root in folders]
        found = known.intersection(candidates)
        found = found or {name for text in candidates for name in forms.get(nfc(text), set())}
        matches = sorted(found or last_parts.get(nfc(path), set()))
        if len(matches) > 1:
            raise ValueError(
                f"{source}: {path!r} means {matches[0]!r} or {matches[1]!r}: give paths "
                "relative to the folder of the data"
            )
        if matches:
            name_of[provided] = matches[0]
    return name_of
