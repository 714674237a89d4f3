"""Write src/widefield/cli/calls.json: parameters, defaults and help of the calls of each command.

The file is written, not read off the calls, because the command line must know its options without
importing torch.
"""

import ast
import dataclasses
import inspect
import json
import textwrap
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import widefield
from widefield.config.defaults import LONG_RUN_EPOCHS
from widefield.config.recipe import Recipe
from widefield.config.recipes import RECIPES, make_recipe
from widefield.core.settings import Settings
from widefield.core.shared_arguments import arguments_of
from widefield.core.types import ImageSize
from widefield.core.validation import kinds
from widefield.data.labels import Labels
from widefield.data.source import Data
from widefield.encoders import EncoderSettings
from widefield.inference.open_encoder import EncoderSpec
from widefield.methods import METHODS
from widefield.views import VIEWS
from widefield.workflows.demo import demo

CALLS: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(widefield, name)
        for name in (
            *("plan", "pretrain", "probe", "audit", "explore", "classify", "search", "embed"),
            *("export", "recover"),
        )
    },
    "demo": demo,
    "views": widefield.draw_views,
}
"""Command -> its call in Python."""

NOT_ON_THE_COMMAND_LINE = {"quiet", "on_note", "on_step", "on_epoch"}

ALIASES: dict[str, Any] = {"encoder": EncoderSpec, "data": Data}
"""Kinds of arguments that the command line checks before it imports torch."""

WORDS: dict[Any, list[str]] = {EncoderSpec: ["str"], Data: ["str"], Labels: ["path"]} | {
    ImageSize: ["int", "str"],
    str | Path: ["path"],
}
"""Type in Python -> types of a word of the command line, where they differ."""


def source() -> str:
    """Return the text of the file."""
    values = {
        "calls": {name: described(call) for name, call in CALLS.items()},
        "settings": {
            "run": texts(Recipe),
            "encoder": flat_texts(EncoderSettings()),
            "methods": {name: flat_texts(kind()) for name, kind in METHODS.items()},
            "views": {name: flat_texts(policy.settings()) for name, policy in VIEWS.items()},
            "summaries": {name: policy.summary for name, policy in VIEWS.items()},
        },
        "defaults": {
            "long_run_epochs": LONG_RUN_EPOCHS,
            "recipes": {name: recipe_defaults(name) for name in RECIPES},
            "views": {name: shown(policy.settings().flat()) for name, policy in VIEWS.items()},
        },
    }
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def recipe_defaults(name: str) -> dict[str, Any]:
    """Return the default methods of a recipe, by length of run, and the defaults of each method."""
    published = RECIPES[name]
    methods = METHODS if published is None else published.methods
    found = {method: make_recipe(name, method=method).flat() for method in methods}
    return {
        "short": make_recipe(name, epochs=1).method.name,
        "long": make_recipe(name, epochs=LONG_RUN_EPOCHS).method.name,
        "methods": {method: shown(values) for method, values in found.items()},
    }


def shown(values: Mapping[str, Any]) -> dict[str, str]:
    """Return defaults as help shows them."""
    return {name: "not set" if value is None else str(value) for name, value in values.items()}


def described(call: Callable[..., Any]) -> dict[str, Any]:
    """Return summary and parameters of a call, without callbacks."""
    doc = inspect.cleandoc(call.__doc__ or "")
    helps, hints = arguments_of(doc), typing.get_type_hints(call)
    found = [
        parameter(p, hints[p.name], helps.get(p.name, ""))
        for p in inspect.signature(call).parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name not in NOT_ON_THE_COMMAND_LINE
    ]
    return {"summary": plain(doc.partition("\n")[0]), "parameters": found}


def parameter(p: inspect.Parameter, hint: Any, text: str) -> dict[str, Any]:
    """Return a parameter as the command line needs it."""
    given = {kind for kind in kinds(hint) if kind is not NoneType}
    same = [alias for alias in WORDS if {*kinds(alias)} == given]
    known = {str: "str", int: "int", float: "float", bool: "bool", Path: "path"}
    types: list[Any] = list(WORDS[same[0]]) if same else []
    for kind in kinds(hint) if not same else ():
        if typing.get_origin(kind) is Literal:
            types.append(list(typing.get_args(kind)))
        elif kind in known:
            types.append(known[kind])
    types += ["none"] * (NoneType in kinds(hint))
    found: dict[str, Any] = {"name": p.name, "types": types, "help": plain(text)}
    for name, alias in ALIASES.items():
        if {*kinds(alias)} == given:
            found["kind"] = name
    if p.kind is p.POSITIONAL_OR_KEYWORD:
        found["positional"] = True
    if p.default is not p.empty:
        found["default"] = p.default
    return found


def plain(text: str) -> str:
    """Return a docstring's text for the command line, without what follows "In Python"."""
    text = text.partition(" In Python")[0].replace("`", "")
    return text[:1].upper() + text[1:]


def flat_texts(settings: Settings) -> dict[str, str]:
    """Return the help of every setting under its flat name."""
    found: dict[str, str] = {}
    helps = texts(type(settings))
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Settings):
            found |= {f"{field.name}_{name}": text for name, text in flat_texts(value).items()}
        else:
            found[field.name] = helps[field.name]
    return found


def texts(cls: type[Settings]) -> dict[str, str]:
    """Return the docstring under each field, of the class and its base classes."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[: cls.__mro__.index(Settings)]):
        (body,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                found[field.target.id] = ast.literal_eval(text.value)
    return {f.name: found[f.name] for f in dataclasses.fields(cls) if f.name in found}


if __name__ == "__main__":
    path = Path(__file__).parents[1] / "src" / "widefield" / "cli" / "calls.json"
    path.write_text(source())
