"""Every command in one command line, built for what the user typed."""

from cyclopts import App

import widefield
from widefield.cli.audit import audit
from widefield.cli.classify import classify
from widefield.cli.completion import completion
from widefield.cli.demo import demo
from widefield.cli.embed import embed
from widefield.cli.explore import explore
from widefield.cli.export import export
from widefield.cli.help import examples, grouped
from widefield.cli.lab import lab
from widefield.cli.numbers import UNROUNDED
from widefield.cli.plan import plan
from widefield.cli.pretrain import pretrain
from widefield.cli.probe import probe
from widefield.cli.recipe_options import all_options, options_of, with_options
from widefield.version import __version__

COMMANDS = (
    *(demo, plan, pretrain, probe, audit, explore, classify, embed, export, lab),
    completion,
)
TAKE_SETTINGS = (plan, pretrain)
"""Commands whose options are those of a recipe."""


def build_app(words: list[str]) -> App:
    """Build the command line for what the user typed, without running anything.

    Help lists the options of the chosen method with their defaults, which takes importing it.
    Without help every option of any method is taken, and the recipe refuses those that do not fit.

    Raises:
        ValueError: help is asked for a method, views or recipe that does not exist.
    """
    app = App(
        name="widefield",
        help=f"{widefield.__doc__}\n\nCommands take --json for machines. Bad input ends in "
        "one line and exit code 2; --debug shows where it came from.",
        version=__version__,
        help_format="plaintext",
        default_parameter=UNROUNDED,
        suppress_keyboard_interrupt=False,
    )
    wants_help = bool({"--help", "-h"} & set(words))
    for command in COMMANDS:
        whole = command
        if command in TAKE_SETTINGS:
            named = wants_help and command.__name__ in words[:1]
            whole = with_options(command, options_of(words) if named else all_options())
        app.command(grouped(whole), help_epilogue=examples(command.__name__))
    return app
