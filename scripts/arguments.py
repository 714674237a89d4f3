"""Write arguments.py of methods, views and config: settings by their flat names, as types.

    python scripts/arguments.py

The files are written, not computed, because type checkers read them, and the command line before
it knows whether there is anything to train: they are importable without torch.
"""

import dataclasses
import re
import typing
from collections.abc import Iterable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal

from annotated_types import Interval

from widefield.config.recipe import RUN_SETTINGS
from widefield.config.recipes import make_recipe
from widefield.core.settings import Settings
from widefield.core.validation import hints_of, kinds
from widefield.encoders import EncoderSettings
from widefield.methods import METHODS
from widefield.views import VIEWS

SOURCE = Path(__file__).parents[1] / "src" / "widefield"

PARTS = '''"""Every setting of the {what}, by its flat name.

Written by scripts/arguments.py from the settings themselves.
"""

from typing import Annotated, Literal, TypedDict

from annotated_types import {limits}


class {name}(TypedDict, total=False):
    """Settings of {what} as keyword arguments."""

'''

RECIPE = '''"""Every setting of a run, its method, its views and its encoder, by its flat name.

Written by scripts/arguments.py from the settings themselves; importing it imports nothing of them.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import {limits}

from widefield.methods.arguments import MethodArguments
from widefield.views.arguments import ViewArguments

if TYPE_CHECKING:
    from torch.nn import Module

    from widefield.encoders import EncoderSettings
    from widefield.methods import MethodConfig
    from widefield.views import ViewSettings


class RecipeArguments(MethodArguments, ViewArguments, total=False):
    """Keyword arguments of `widefield.pretrain` and options of `widefield pretrain`."""

    method: "str | MethodConfig"
    views: "str | ViewSettings"
    encoder: "str | EncoderSettings | Module"
    init: "str | PathLike[str] | Module | None"
    teacher: "str | PathLike[str] | Sequence[str | PathLike[str]]"
'''


def hints_of_parts(parts: Iterable[Settings]) -> dict[str, list[Any]]:
    """Return the types that each flat setting has, over all methods or views.

    Teachers are left out, because a run takes other values than the method.
    """
    hints: dict[str, list[Any]] = {}
    for part in parts:
        for name, hint in flat(part).items():
            if name != "teacher" and hint not in hints.setdefault(name, []):
                hints[name].append(hint)
    return {name: found for name, found in hints.items() if found}


def hints_of_run() -> dict[str, list[Any]]:
    """Return the type of each flat setting of encoder and run."""
    described, encoder = flat(make_recipe()), flat(EncoderSettings())
    hints: dict[str, list[Any]] = {n: [hint] for n, hint in encoder.items() if n != "name"}
    return hints | {name: [described[name]] for name in RUN_SETTINGS if name != "init"}


def flat(settings: Settings) -> dict[str, Any]:
    """Return the type of every setting under its flat name."""
    found: dict[str, Any] = {}
    for name, hint in hints_of(type(settings)).items():
        value = getattr(settings, name)
        inner = flat(value) if isinstance(value, Settings) else None
        found |= {name: hint} if inner is None else {f"{name}_{k}": v for k, v in inner.items()}
    return found


def union(hints: list[Any]) -> str:
    """Return several types as one stands in source: each once, None last.

    The range is that of the settings if all have the same one.
    """
    members = dict.fromkeys(member for hint in hints for member in kinds(hint))
    text = " | ".join(map(written, sorted(members, key=lambda member: member is NoneType)))
    ranges = {repr(getattr(hint, "__metadata__", ())): hint for hint in hints}
    (hint, *others) = ranges.values()
    if others or typing.get_origin(hint) is not Annotated:
        return text
    return f"Annotated[{text}, {', '.join(map(limit, hint.__metadata__))}]"


def limit(bound: Any) -> str:
    """Return a limit of a number as it stands in source."""
    given = {side: x for side, x in dataclasses.asdict(bound).items() if x is not None}
    if isinstance(bound, Interval):
        return f"Interval({', '.join(f'{side}={x}' for side, x in given.items())})"
    (value,) = given.values()
    return f"{type(bound).__name__}({value})"


def written(hint: Any) -> str:
    """Return a type as it stands in source."""
    if hint is NoneType:
        return "None"
    if typing.get_origin(hint) is Literal:
        words = ", ".join(f'"{word}"' for word in typing.get_args(hint))
        return f"Literal[{words}]"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def filled(header: str, hints: dict[str, list[Any]], **names: str) -> str:
    """Return a file: its header with the limits that it imports, and a line for each setting."""
    lines = "".join(f"    {name}: {union(found)}\n" for name, found in hints.items())
    limits = sorted(set(re.findall(r"\b(Ge|Gt|Interval|Le|Lt)\(", lines)))
    return header.format(limits=", ".join(limits), **names) + lines


def of_methods() -> str:
    """Return the text of the file of the methods."""
    hints = hints_of_parts(settings() for settings in METHODS.values())
    return filled(PARTS, hints, what="methods", name="MethodArguments")


def of_views() -> str:
    """Return the text of the file of the views."""
    hints = hints_of_parts(policy.settings() for policy in VIEWS.values())
    return filled(PARTS, hints, what="view policies", name="ViewArguments")


def of_recipes() -> str:
    """Return the text of the file of a whole run."""
    return filled(RECIPE, hints_of_run())


FILES = {
    "methods/arguments.py": of_methods,
    "views/arguments.py": of_views,
    "config/arguments.py": of_recipes,
}
"""Each file, and its text."""


if __name__ == "__main__":
    for path, text in FILES.items():
        (SOURCE / path).write_text(text())
