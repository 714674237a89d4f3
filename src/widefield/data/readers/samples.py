"""Which members of a tar file belong to one sample, by their names."""

from collections.abc import Sequence

Key = tuple[int, str]
"""Number of a tar file, and the beginning of names in it."""


def sample_keys(
    images: Sequence[Key], sidecars: Sequence[Key]
) -> tuple[list[Key], list[Key]] | None:
    """Return the sample of each image and sidecar, by their stems; None if none belong together.

    An image and a sidecar of one stem are a sample. Others belong to the sample whose stem theirs
    continues after a dot. If there is none, they share what is before the first dot, as in
    WebDataset.
    """
    stems, labeled = set(images), set(sidecars)
    whole = stems & labeled
    # An image that continues the stem of labels is theirs, such as 2.left of 2.
    of_image = {stem: _start(stem, labeled) or stem for stem in stems - whole}
    of_sidecar = {stem: _start(stem, stems) or stem for stem in labeled - whole}
    lonely = {stem for stem in of_sidecar if of_sidecar[stem] == stem} - set(of_image.values())
    firsts = {_first(stem) for stem in lonely}
    of_image |= {s: _first(s) for s in of_image if of_image[s] == s and _first(s) in firsts}
    of_sidecar |= {s: _first(s) for s in lonely}
    image_keys = [of_image.get(stem, stem) for stem in images]
    sidecar_keys = [of_sidecar.get(stem, stem) for stem in sidecars]
    return (image_keys, sidecar_keys) if set(image_keys) & set(sidecar_keys) else None


def _start(stem: Key, others: set[Key]) -> Key | None:
    """Return the longest of `others` that `stem` continues after a dot."""
    file, name = stem
    while (cut := name.rfind(".")) > name.rfind("/") + 1:
        name = name[:cut]
        if (file, name) in others:
            return file, name
    return None


def _first(stem: Key) -> Key:
    folder, slash, last = stem[1].rpartition("/")
    return stem[0], folder + slash + last.partition(".")[0]
