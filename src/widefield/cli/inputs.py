"""Checks of a command's inputs that need no torch, which takes seconds and memory to import."""

import os
from collections.abc import Mapping
from typing import Any


def check_inputs(values: Mapping[str, Any], kinds: Mapping[str, str | None]) -> None:
    """Check that what a command reads is there, and that it would not replace a file.

    The work itself checks the same again, and more, once torch is imported. `kinds` are what each
    parameter is, such as an encoder or data.
    """
    from widefield.core.files import check_not_there
    from widefield.data.spec import parse
    from widefield.encoders.names import check_encoder_name

    out = values.get("out")
    is_new = "overwrite" in kinds and not values.get("overwrite")
    if is_new and out is not None and not out.is_dir():  # tables may be added to a folder
        check_not_there(out)
    for table in filter(None, (values.get("labels"), values.get("exclude"))):
        try:
            os.stat(table)
        except OSError as error:
            raise ValueError(f"cannot read {table}: {error.strerror}") from error
    for name, value in values.items():
        if value is not None and (name == "run" or kinds.get(name) == "encoder"):
            check_encoder_name(str(value))
        elif value is not None and kinds.get(name) == "data":
            parse(value)
