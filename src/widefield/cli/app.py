"""The command line with all commands, which are imported when they are called."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, get_args

import cyclopts
from cyclopts import App, Parameter, Token

import widefield
from widefield.cli.help import examples
from widefield.version import __version__

COMMANDS = (
    *("demo", "plan", "pretrain", "probe", "audit", "explore", "classify", "search", "embed"),
    *("export", "recover", "views", "lab", "completion"),
)
"""Names of the commands, and of their functions in this package."""
COMMAND_FILES = ("plan", "pretrain", "export", "lab", "completion")
"""Commands that do more than call a function, each in a file of its name."""
TAKE_SETTINGS = ("plan", "pretrain")
"""Commands whose options are those of a recipe."""


def build_app(words: list[str]) -> App:
    """Build the command line for `words`.

    Help lists the options of the selected method with their defaults, for which it is imported.
    Without help all options of all methods are accepted, and the recipe checks them.
    """
    app = App(
        name="widefield",
        help=f"{widefield.__doc__}\n\nCommands take --json for machines. Bad input ends in "
        "one line and exit code 2; --debug shows the traceback.",
        version=__version__,
        help_format="plaintext",
        default_parameter=Parameter(converter=_convert),
        suppress_keyboard_interrupt=False,
    )
    is_help = not {*words[:1]} & {*COMMANDS}
    for name in COMMANDS:
        command: Any = f"{module_of(name)}:{name}"
        if words[:1] == [name] and name in TAKE_SETTINGS:
            command = _with_settings(name, words)
        elif is_help:  # for help and completion
            command = _command(name)
        app.command(command, name=name, help_epilogue=examples(name))
    return app


def _with_settings(name: str, words: list[str]) -> Any:
    from widefield.cli.recipe_options import check_cli_options, options_of, with_options

    check_cli_options(words)
    command = _command(name)
    return with_options(command, options_of(words)) if {"--help", "-h"} & set(words) else command


def _command(name: str) -> Any:
    return getattr(import_module(module_of(name)), name)


def module_of(name: str) -> str:
    """Return the module of a command, which is imported when the command is called."""
    return f"widefield.cli.{name if name in COMMAND_FILES else 'commands'}"


def _convert(kind: Any, tokens: Sequence[Token]) -> Any:
    """Return the value of `tokens`; a fraction for a whole number is an error."""
    if int in (kind, *get_args(kind)) and float not in get_args(kind):
        for token in tokens:
            if "." in token.value:
                raise ValueError(f"{token.value!r} is not a whole number")
    return cyclopts.convert(kind, tokens)
