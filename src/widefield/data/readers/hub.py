"""Data sets of the Hugging Face Hub by name: fetched once on request, then read from the cache."""

import os
import re
import shutil
from pathlib import Path

from widefield.core.errors import option
from widefield.core.names import printable, reason_of
from widefield.data.cache import cache_folder, make_cache_folder

PREFIX = "hf:"
_FIRST = re.compile(r"(.*)\[:(\d+)\]")


def fetch(name: str) -> None:
    """Save the data set `hf:OWNER/NAME[/SPLIT]` in the cache, if it is not there yet.

    The package `datasets` fetches it and writes Arrow files, which are mapped into memory when they
    are read. So the data may be larger than the memory, and their order is that of the files. Of
    `hf:OWNER/NAME/SPLIT[:N]` the first N examples are streamed into one Parquet file, so that the
    whole may be larger than the disk.
    """
    path, split, count = _parts(name)
    target = _target(path, split, count)
    if target.exists():
        return
    try:
        import datasets
    except ImportError:
        raise ValueError(f"'{name}' needs the package datasets: pip install datasets") from None
    make_cache_folder(target.parent)
    temp_path = target.with_name(f".{target.name}.{os.getpid()}.draft")  # others may fetch it too
    try:
        if count is None:
            datasets.load_dataset(path).save_to_disk(str(temp_path))
        else:
            stream = datasets.load_dataset(path, split=split, streaming=True)
            stream.take(count).to_parquet(str(temp_path))
        # Renamed when it is whole: other processes read whatever has the name.
        if not target.exists():
            temp_path.rename(target)
    except Exception as error:  # the package has errors of many libraries
        raise ValueError(f"cannot fetch '{name}': {reason_of(error, most=200)}") from error
    finally:
        if count is None:
            shutil.rmtree(temp_path, ignore_errors=True)
        else:
            temp_path.unlink(missing_ok=True)


def kept_path(name: str) -> Path:
    """Return the folder or file of a data set, a split or the first examples that `fetch` saved."""
    path, split, count = _parts(name)
    target = _target(path, split, count)
    if not target.exists():
        raise ValueError(
            f"'{name}' is not on this machine: add {option('download', True)} to pretrain or plan "
            "to fetch it"
        )
    if count is not None:
        return target
    splits = sorted(entry.name for entry in target.iterdir() if entry.is_dir())
    if splits and split not in splits:
        raise ValueError(
            f"'{name}' has the splits {', '.join(map(printable, splits))}: name one of them, such "
            f"as '{PREFIX}{path}/{splits[-1]}'"
        )
    return target / split if splits and split else target


def _parts(name: str) -> tuple[str, str | None, int | None]:
    """Return OWNER/NAME, SPLIT and N of a name; None where it has none."""
    first = _FIRST.fullmatch(name)
    owner, title, *split = (first[1] if first else name).removeprefix(PREFIX).split("/")
    path, count = f"{owner}/{title}", int(first[2]) if first else None
    if count == 0 or (first and not split):
        raise ValueError(
            f"'{name}' names no examples: name a split and how many, such as "
            f"'{PREFIX}{path}/train[:1000]'"
        )
    return path, split[0] if split else None, count


def _target(path: str, split: str | None, count: int | None) -> Path:
    """Return where a data set, or the first examples of a split, is kept."""
    root = cache_folder() / "hub"
    return root / path if count is None else root / f"{path}.first" / f"{split}-{count}.parquet"
