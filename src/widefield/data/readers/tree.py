"""Which files below a root are examples: one rule for folders, archives and URLs."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from widefield.core.names import printable
from widefield.data.decode.images import FORMATS
from widefield.data.readers.recordings import SUFFIXES

_MAX_KINDS = 4
"""Suffixes and folders that a note names, chosen by hand."""
_ARRAY = ".npy"
_SYSTEM = {"@eadir", "$recycle.bin", "#recycle", "@recycle", "recycler", "#snapshot", "@tmp"}
_SYSTEM |= {"system volume information", "lost+found", "network trash folder", "temporary items"}
_SYSTEM |= {"__macosx", "__pycache__", "picasaoriginals"}
"""Folders that other programs write: thumbnails, deleted files, metadata."""
_TARGETS = {"masks", "annotations", "labels", "groundtruth", "ground_truth"}
_TARGETS |= {"segmentations", "segmentationclass", "segmentationobject", "trimaps", "gtfine"}
"""Folders of targets beside the images."""
_TARGETS_TEXT = "hold targets and no examples"
TARGET = re.compile(
    r"[._-](?:masks?|seg|segmentation|depth|labels?|gt|ground_?truth|annotations?|trimap)"
    r"(?:[._-]?\d+)?\.\w+$",
    re.IGNORECASE,
)
"""End of the name of a target beside its image: `0_mask.png` beside `0.png`."""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The files of a source, sorted out."""

    kind: str
    """What its examples are: `images`, `sounds` or, where there is nothing else, `arrays`."""
    rows: list[int]
    """Positions of the examples among the files."""
    ignored: Counter[str]
    """Suffix, or kind in words, of files that are no examples -> their number."""
    left_out: tuple[str, ...]
    """Notes on files of other programs and on targets."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not read, in words."""
        return (*ignored_note(self.ignored), *self.left_out)

    def check_images(self, source: str) -> None:
        """Check that the examples of an archive or a URL are images."""
        if self.kind == "sounds":
            raise ValueError(f"{source} holds sounds: unpack them into a folder, and give that")
        if not self.rows:
            others = "".join(f" ({note})" for note in self.notes[:1])
            raise ValueError(
                f"{source} holds no images{others}: expected members such as .jpg, .png or .webp"
            )


def sort_out(
    paths: Sequence[str], source: str, ignored: Counter[str], system_files: Counter[str]
) -> Tree:
    """Return which of the visible files are examples: neither targets beside others nor others.

    `ignored` counts files that are known to be no examples, by kind, to which those that are found
    are added, and `system_files` the files in each folder of other programs.
    """
    kind_of = {
        **dict.fromkeys(image_suffixes(), "images"),
        **dict.fromkeys(SUFFIXES, "sounds"),
        _ARRAY: "arrays",
    }
    found: dict[str, list[int]] = {"images": [], "sounds": [], "arrays": []}
    for row, path in enumerate(paths):
        suffix = suffix_of(path)
        if suffix in kind_of:
            found[kind_of[suffix]].append(row)
        else:
            ignored[suffix or "without a suffix"] += 1
    if found["images"] and found["sounds"]:
        raise ValueError(
            f"{source} holds {len(found['images'])} images and {len(found['sounds'])} sounds; put "
            "them into folders of their own"
        )
    # Arrays are examples only where there is nothing else: beside images they may be targets.
    kind = next((kind for kind, rows in found.items() if rows), "images")
    if kind != "arrays":
        ignored[_ARRAY] += len(found["arrays"])
    notes = _folders_note(system_files, "other programs write")
    rows, folders = _without_folders_of_targets(paths, found[kind])
    notes += _folders_note(folders, _TARGETS_TEXT)
    if kind == "images":
        rows, named = _without_named_targets(paths, rows)
        notes += tuple(
            f"not read: {len(named)} files such as '{printable(path)}' beside their images, which "
            f"{_TARGETS_TEXT}"
            for path in named[:1]
        )
    return Tree(kind=kind, rows=rows, ignored=ignored, left_out=notes)


def visible(paths: Sequence[str], system_files: Counter[str]) -> list[int]:
    """Return the positions of files that are neither hidden nor of other programs.

    Those in folders of other programs are counted in `system_files`.
    """
    rows = []
    for row, path in enumerate(paths):
        *folders, name = path.split("/")
        skipped = next((x for x in folders if is_hidden(x) or is_system_folder(x)), None)
        if skipped is not None and not is_hidden(skipped):
            system_files[skipped] += 1
        elif skipped is None and not is_hidden(name):
            rows.append(row)
    return rows


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of this name is not read, and not counted."""
    return name.startswith(".") and name != ".."


def is_system_folder(folder: str) -> bool:
    """Return whether a folder of this name is one that other programs write."""
    return folder.lower() in _SYSTEM


def _without_folders_of_targets(
    paths: Sequence[str], rows: list[int]
) -> tuple[list[int], Counter[str]]:
    """Return the rows outside folders of targets, if there are any, and counts of the others."""
    folders = Counter(paths[row].rpartition("/")[0] for row in rows)
    target_of = {
        folder: next((part for part in folder.split("/") if part.lower() in _TARGETS), None)
        for folder in folders
    }
    if None not in target_of.values():
        return rows, Counter()
    counts: Counter[str] = Counter()
    for folder, target in target_of.items():
        if target is not None:
            counts[target] += folders[folder]
    return [row for row in rows if target_of[paths[row].rpartition("/")[0]] is None], counts


def _without_named_targets(paths: Sequence[str], rows: list[int]) -> tuple[list[int], list[str]]:
    """Return the rows without files named as targets of other files, and the paths of these."""
    matches = {row: TARGET.search(paths[row]) for row in rows}
    ends = {row: match.start() for row, match in matches.items() if match is not None}
    if not ends:
        return rows, []
    stems = {paths[row].rpartition(".")[0] for row in rows}
    targets = {row for row, end in ends.items() if paths[row][:end] in stems}
    return [row for row in rows if row not in targets], [paths[row] for row in targets]


def _folders_note(counts: Counter[str], reason: str) -> tuple[str, ...]:
    if not counts:
        return ()
    names = " and ".join(printable(name) for name in sorted(counts)[:_MAX_KINDS])
    return (f"not read: {sum(counts.values())} files in {names}, which {reason}",)


def ignored_note(ignored: Counter[str]) -> tuple[str, ...]:
    """Return the number of files of each kind that is not read."""
    ignored = +ignored
    if not ignored:
        return ()
    kinds = sorted(ignored.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count} {printable(kind)}" for kind, count in kinds[:_MAX_KINDS]]
    others = sum(count for _, count in kinds[_MAX_KINDS:])
    parts += [f"{others} others"] if others else []
    return (f"not read, because they are not images of a known type: {', '.join(parts)}",)


def suffix_of(path: str) -> str:
    """Return the suffix of a path in lower case, as `os.path.splitext` does, but faster."""
    name, dot, suffix = path.rpartition(".")
    return dot + suffix.lower() if name and dot and "/" not in suffix else ""


def image_suffixes() -> set[str]:
    formats = Image.registered_extensions()
    # Pillow opens the several frames of an MPO file as those of a JPEG.
    known = {name for name in FORMATS if name in Image.OPEN} | {"MPO"}
    return {suffix for suffix, name in formats.items() if name in known}
