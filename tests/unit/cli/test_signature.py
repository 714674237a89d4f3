"""A command has the parameters of the Python call that it makes."""

import ast
import inspect
import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import Parameter

import options
import widefield
from widefield.cli.app import COMMANDS, TAKE_SETTINGS, module_of
from widefield.config.arguments import RecipeArguments
from widefield.core.shared_arguments import SHARED_ARGUMENTS, arguments_of
from widefield.workflows.demo import demo

CALLS = {
    name: getattr(widefield, name)
    for name in (
        *("plan", "pretrain", "probe", "audit", "explore", "classify", "embed", "export"),
        *("recover", "search"),
    )
} | {"demo": demo, "views": widefield.draw_views}
PYTHON_ONLY = {
    "quiet": set(CALLS),
    "on_note": set(CALLS),
    "on_step": {"pretrain"},
    "on_epoch": {"pretrain"},
    "findings": {"export"},
    "settings": {"plan", "pretrain"},
}
TERMINAL_ONLY = {"json": set(CALLS), "config": {"plan", "pretrain"}, "audit": {"export"}}
OWN = {"feature", "out", "plant", "run", "data", "recipe", "views"}
"""What a command may declare anew: a file that Python need not be given, words without types."""


def command_of(name: str) -> inspect.Signature:
    return inspect.signature(getattr(import_module(module_of(name)), name))


@pytest.mark.parametrize("name", CALLS)
def test_names_and_defaults_are_those_of_the_call(name: str) -> None:
    call = inspect.signature(CALLS[name]).parameters
    command = command_of(name).parameters
    settings = RecipeArguments.__annotations__.keys() if name in TAKE_SETTINGS else set()
    assert command.keys() - settings == {
        *(key for key in call if name not in PYTHON_ONLY.get(key, ())),
        *(key for key, names in TERMINAL_ONLY.items() if name in names),
    }
    for key in call.keys() & command.keys() - OWN:
        assert command[key].default == call[key].default, key


@pytest.mark.parametrize("name", CALLS)
def test_every_option_has_help_and_a_type(name: str) -> None:
    for key, parameter in command_of(name).parameters.items():
        kind, *parts = typing.get_args(parameter.annotation)
        helps = [part.help for part in parts if isinstance(part, Parameter)]
        is_setting = name in TAKE_SETTINGS and key in RecipeArguments.__annotations__
        assert is_setting or any(helps), key
        assert not any("`" in text or "In Python" in text for text in helps if text), key
        assert kind is not typing.Any, key


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_of_a_call_is_described_and_shared_ones_once(name: str) -> None:
    call = inspect.unwrap(CALLS[name])
    described = arguments_of(inspect.getdoc(call) or "")
    assert described.keys() >= inspect.signature(call).parameters.keys() - {"settings"}
    (written,) = ast.parse(inspect.getsource(call)).body
    assert isinstance(written, ast.FunctionDef)
    own = arguments_of(ast.get_docstring(written) or "")
    assert [key for key, text in own.items() if text == SHARED_ARGUMENTS.get(key)] == []


def test_types_are_those_of_words() -> None:
    probe = command_of("probe").parameters
    kinds = {name: typing.get_args(p.annotation)[0] for name, p in probe.items()}
    assert kinds["encoder"] is str
    assert kinds["data"] == str | None
    assert kinds["labels"] == Path | None
    assert kinds["max_examples"] == int | None
    assert kinds["features"] == typing.Literal["pooled", "wide", "feature-map", "projected"]
    assert typing.get_args(command_of("demo").parameters["out"].annotation)[0] is Path


def test_text_on_arguments() -> None:
    section = "Args:\n    x: first\n        term: a number.\n    **y: rest.\n"
    doc = f"Add.\n\n{section}\nReturns:\n    z: sum."
    assert arguments_of(doc) == {"x": "first term: a number."}
    assert arguments_of("Add.") == {}
    assert options.plain("a `word`. In Python a list.") == "A word."


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_read_without_torch(name: str) -> None:
    """Its options and help come from calls.json: torch alone takes seconds to import."""
    program = f"""
import sys
from widefield.cli.app import build_app
build_app(["{name}"])["{name}"].assemble_argument_collection()
others = [m for m in sys.modules if m.startswith("widefield.cli.") and m.count(".") == 2]
print(*({{"torch", "timm", "lightning", "numpy"}} & sys.modules.keys()))
print("widefield.cli.export" in others)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    heavy, loads_export = done.stdout.splitlines()
    assert heavy == ""
    assert (loads_export == "True") == (name == "export")
