"""The `widefield` command: parses, calls, prints. One file per command; heavy imports inside."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError

import widefield
from widefield.cli.audit import audit
from widefield.cli.bench import bench
from widefield.cli.classify import classify
from widefield.cli.demo import demo
from widefield.cli.embed import embed
from widefield.cli.export import export
from widefield.cli.lab import lab
from widefield.cli.plan import plan
from widefield.cli.pretrain import pretrain
from widefield.cli.probe import probe
from widefield.cli.recipe import recipe
from widefield.cli.recipe_options import all_options, options_of, with_options
from widefield.version import __version__

COMMANDS = (demo, plan, pretrain, probe, audit, classify, embed, export, recipe, lab, bench)
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
        help=f"{widefield.__doc__}\n\nEvery command takes --json for machines. Bad input ends in "
        "one line and exit code 2; --debug shows where it came from.",
        version=__version__,
        help_format="plaintext",
    )
    wants_help = bool({"--help", "-h"} & set(words))
    for command in COMMANDS:
        if command in TAKE_SETTINGS:
            named = wants_help and command.__name__ in words[:1]
            app.command(with_options(command, options_of(words) if named else all_options()))
        else:
            app.command(command)
    return app


def main() -> NoReturn:
    """Run the command that the user typed, and exit."""
    signal.signal(signal.SIGTERM, _terminate)
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    try:
        build_app(words)(words, exit_on_error=False, print_error=False)
    except (ValueError, CycloptsError) as error:
        if debug:
            raise
        _quit(str(error), 2)
    except KeyboardInterrupt:
        _quit("interrupted", 128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    raise SystemExit(0)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    """End the command as a signal does, but let it clean up."""
    raise SystemExit(128 + number)


def _quit(message: str, code: int) -> NoReturn:
    rank = int(os.environ.get("RANK", 0))  # where torchrun started several
    who = f"widefield [rank {rank}]" if rank else "widefield"
    print(f"{who}: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code) from None
