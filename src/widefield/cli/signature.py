"""Options and help of a command, as calls.json has them of its Python function.

The file is written by scripts/options.py, because importing the functions takes seconds.
"""

import inspect
import json
import operator
import os
from collections.abc import Callable, Collection, Mapping
from functools import cache, reduce
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import Parameter

from widefield.cli.help import grouped

Command = Callable[..., None]

Json = Annotated[bool, Parameter(help="Print one JSON object.")]

_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "path": Path, "none": None}


@cache
def written() -> dict[str, Any]:
    """Return the calls with their parameters, and the help of settings."""
    return cast(
        dict[str, Any],
        json.loads(resources.files("widefield.cli").joinpath("calls.json").read_text("utf-8")),
    )


def like(name: str, *, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Give a command the parameters and the help of the call `name`, but for those in `without`.

    Parameters that the command declares have its type and default.
    """

    def decorator(command: Command) -> Command:
        call = written()["calls"][name]
        call_parameters = [p for p in call["parameters"] if p["name"] not in without]
        declared = dict(inspect.signature(command).parameters)
        parameters = [_parameter(p, declared.pop(p["name"], None)) for p in call_parameters]
        parameters += [
            p.replace(annotation=_annotation(p.annotation, p.default))
            for p in declared.values()
            if p.kind is p.KEYWORD_ONLY
        ]

        def wrapper(*args: Any, **kwargs: Any) -> None:
            values = {**dict(zip((p.name for p in parameters), args, strict=False)), **kwargs}
            _check_inputs(values, {p["name"]: p.get("kind") for p in call_parameters})
            command(**values)

        wrapper.__name__, wrapper.__doc__ = command.__name__, call["summary"]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return grouped(wrapper)

    return decorator


def _check_inputs(values: Mapping[str, Any], kinds: Mapping[str, str | None]) -> None:
    """Check that what a command reads is there, and that it would not replace a file.

    The work itself checks the same again, and more, once torch is imported, which takes seconds.
    `kinds` are what each parameter is, such as an encoder or data.
    """
    from widefield.core.files import check_not_existing
    from widefield.data.spec import parse
    from widefield.encoders.names import check_encoder_name

    out = values.get("out")
    is_new = "overwrite" in kinds and not values.get("overwrite")
    if is_new and out is not None and not out.is_dir():  # tables may be added to a folder
        check_not_existing(out)
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


def _parameter(written: Mapping[str, Any], declared: inspect.Parameter | None) -> inspect.Parameter:
    """Return a parameter of a call, with type and default of the command if that declares it."""
    positional = written.get("positional", False)
    kind = inspect.Parameter.POSITIONAL_ONLY if positional else inspect.Parameter.KEYWORD_ONLY
    if declared is None:
        default = written.get("default", inspect.Parameter.empty)
        hint = _type(written["types"])
    else:
        default, hint = declared.default, declared.annotation
        kind = declared.kind if declared.kind is declared.KEYWORD_ONLY else kind
    return inspect.Parameter(
        written["name"],
        kind,
        default=default,
        annotation=_annotation(hint, default, help=written["help"]),
    )


def _annotation(hint: Any, default: Any, **settings: Any) -> Any:
    """Return the type of a parameter with its help; flags that are off have no negation."""
    if default is False:
        settings["negative"] = ()
    return cast(Any, Annotated)[hint, Parameter(**settings)]


def _type(names: list[str | list[str]]) -> Any:
    """Return a type by its name, or of choices, or the union of several."""
    kinds = [cast(Any, Literal)[tuple(n)] if isinstance(n, list) else _TYPES[n] for n in names]
    return reduce(operator.or_, kinds)
