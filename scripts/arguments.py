"""Write src/widefield/config/arguments.py: every setting of a run and of its parts, as types.

    python scripts/arguments.py

The file is written, not loaded, because it must be importable without torch: the command line
reads it before it knows whether there is anything to train.
"""

import dataclasses
import typing
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal

from annotated_types import Interval

from widefield.config.recipe import RUN_SETTINGS
from widefield.config.recipes import make_recipe
from widefield.core.settings import describe
from widefield.core.validation import kinds
from widefield.encoders import EncoderSettings
from widefield.methods import METHODS
from widefield.views import VIEWS

TARGET = Path(__file__).parents[1] / "src" / "widefield" / "config" / "arguments.py"

HEADER = '''"""Every setting of a run, its method, its views and its encoder, by its flat name.

Written by scripts/arguments.py from the settings themselves; importing it imports nothing of them.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from annotated_types import Ge, Gt, Interval, Le, Lt

if TYPE_CHECKING:
    from torch.nn import Module

    from widefield.encoders import EncoderSettings
    from widefield.methods import MethodConfig
    from widefield.views import ViewSettings


class RecipeArguments(TypedDict, total=False):
    """Keyword arguments of `widefield.pretrain` and options of `widefield pretrain`."""

    method: "str | MethodConfig"
    views: "str | ViewSettings"
    encoder: "str | EncoderSettings | Module"
    init: "str | PathLike[str] | Module | None"
    teacher: "str | PathLike[str] | Sequence[str | PathLike[str]]"
'''


def flat_hints() -> dict[str, list[Any]]:
    """Return the types that each flat setting has, over all methods and views."""
    described = describe(make_recipe())
    encoder = describe(EncoderSettings()).values()
    hints: dict[str, list[Any]] = {s.name: [s.hint] for s in encoder if s.name != "name"}
    hints |= {name: [described[name].hint] for name in RUN_SETTINGS if name != "init"}
    parts = [settings() for settings in METHODS.values()]
    parts += [policy.settings() for policy in VIEWS.values()]
    for part in parts:
        for setting in describe(part).values():
            if setting.name != "teacher" and setting.hint not in hints.setdefault(setting.name, []):
                hints[setting.name].append(setting.hint)
    return hints


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


def source() -> str:
    """Return the text of the file."""
    lines = [f"    {name}: {union(hints)}\n" for name, hints in flat_hints().items()]
    names = {"METHOD_NAMES": METHODS, "VIEW_NAMES": VIEWS}
    for name, words in names.items():
        lines += [f"\n\n{name} = (\n", *(f'    "{word}",\n' for word in words), ")\n"]
    return HEADER + "".join(lines)


if __name__ == "__main__":
    TARGET.write_text(source())
