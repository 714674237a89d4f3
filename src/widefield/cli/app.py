"""Every command in one command line; the one that the user typed is imported when it is called."""

from importlib import import_module
from typing import Any

from cyclopts import App

import widefield
from widefield.cli.help import examples
from widefield.cli.numbers import UNROUNDED
from widefield.version import __version__

COMMANDS = (
    *("demo", "plan", "pretrain", "probe", "audit", "explore", "classify", "embed", "export"),
    *("lab", "completion"),
)
"""Each has a file of its name in this package, with a function of its name."""
TAKE_SETTINGS = ("plan", "pretrain")
"""Commands whose options are those of a recipe."""


def build_app(words: list[str]) -> App:
    """Build the command line for what the user typed, without running anything.

    Help lists the options of the chosen method with their defaults, which takes importing it.
    Without help every option of any method is taken, and the recipe refuses those that do not fit.

    Raises:
        ValueError: help is asked for a method, views or recipe that does not exist, or an option
            is given that Python alone has.
    """
    app = App(
        name="widefield",
        help=f"{widefield.__doc__}\n\nCommands take --json for machines. Bad input ends in "
        "one line and exit code 2; --debug shows the traceback.",
        version=__version__,
        help_format="plaintext",
        default_parameter=UNROUNDED,
        suppress_keyboard_interrupt=False,
    )
    shows_all = not {*words[:1]} & {*COMMANDS}
    for name in COMMANDS:
        command: Any = f"widefield.cli.{name}:{name}"
        if words[:1] == [name] and name in TAKE_SETTINGS:
            command = _with_settings(name, words)
        elif shows_all:  # as in help and completion, which need each command's own
            command = _command(name)
        app.command(command, name=name, help_epilogue=examples(name))
    return app


def _with_settings(name: str, words: list[str]) -> Any:
    """Return a command that takes the settings of a run, in help those that `words` choose."""
    from widefield.cli.recipe_options import options_of, refuse_python_only, with_options

    refuse_python_only(words)
    command = _command(name)
    return with_options(command, options_of(words)) if {"--help", "-h"} & set(words) else command


def _command(name: str) -> Any:
    return getattr(import_module(f"widefield.cli.{name}"), name)
