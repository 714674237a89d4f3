"""Checks of a command's inputs that need no torch, which takes seconds and memory to import."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TABLES = ("labels", "exclude")


def check_inputs(values: Mapping[str, Any], kinds: Mapping[str, str | None]) -> None:
    """Check that what a command reads is there, and that it would not replace a file.

    The work itself checks the same again, and more, once torch is imported.

    Args:
        values: the given arguments of the command, by name.
        kinds: what each parameter is, such as an encoder or data.
    """
    from widefield.data.spec import parse
    from widefield.encoders.names import check_encoder_name

    if "overwrite" in kinds and not values.get("overwrite"):
        _check_new(values.get("out"))
    for name in _TABLES:
        _check_readable(values.get(name))
    for name, value in values.items():
        if value is not None and (name == "run" or kinds.get(name) == "encoder"):
            check_encoder_name(str(value))
        elif value is not None and kinds.get(name) == "data":
            parse(value)


def _check_new(out: Path | None) -> None:
    from widefield.core.files import check_not_there

    if out is not None and not out.is_dir():  # tables may be added to a folder
        check_not_there(out)


def _check_readable(table: Path | None) -> None:
    try:
        if table is not None:
            os.stat(table)
    except OSError as error:
        raise ValueError(f"cannot read {table}: {error.strerror}") from error
