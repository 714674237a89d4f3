"""Data sets of the Hugging Face Hub by name: fetched once on request, then read from the cache."""

import os
import shutil
from pathlib import Path

from widefield.core.names import printable
from widefield.data.cache import cache_folder, make_cache_folder
from widefield.data.examples import Examples
from widefield.data.readers import tables

PREFIX = "hf:"


def fetch(name: str) -> None:
    """Save the data set `hf:OWNER/NAME[/SPLIT]` in the cache, if it is not there yet.

    The package `datasets` fetches it and writes Arrow files, which are mapped into memory when they
    are read. So the data may be larger than the memory, and their order is that of the files.

    Raises:
        ValueError: the package is missing, or the data set cannot be fetched.
        CacheError: the cache cannot be written.
    """
    owner, title = name.removeprefix(PREFIX).split("/")[:2]
    folder = _root() / owner / title
    if folder.is_dir():
        return
    try:
        import datasets
    except ImportError:
        raise ValueError(f"'{name}' needs the package datasets: pip install datasets") from None
    make_cache_folder(folder.parent)
    draft = folder.with_name(f".{title}.{os.getpid()}.draft")  # another process may fetch it too
    try:
        datasets.load_dataset(f"{owner}/{title}").save_to_disk(str(draft))
        if not folder.is_dir():
            draft.rename(folder)
    except Exception as error:  # the package has errors of many libraries
        reason = printable(" ".join(str(error).split()))[:200] or type(error).__name__
        raise ValueError(f"cannot fetch '{name}': {reason}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read_hub(name: str) -> Examples:
    """Read a data set, or a split of it, that `fetch` has saved.

    Raises:
        ValueError: it was not fetched, has several splits or not this one, or is damaged.
    """
    folder = _root() / name.removeprefix(PREFIX)
    whole = _root().joinpath(*name.removeprefix(PREFIX).split("/")[:2])
    if not whole.is_dir():
        raise ValueError(
            f"'{name}' is not on this machine: add --download to pretrain or plan to fetch it"
        )
    splits = sorted(entry.name for entry in whole.iterdir() if entry.is_dir())
    if splits and (folder == whole or folder.name not in splits):
        raise ValueError(
            f"'{name}' has the splits {', '.join(map(printable, splits))}: name one of them, such "
            f"as '{PREFIX}{whole.parent.name}/{whole.name}/{splits[-1]}'"
        )
    return tables.read_saved(folder if splits else whole)


def _root() -> Path:
    return cache_folder() / "hub"
