"""The `widefield` command: parses, calls, prints. One file per command; heavy imports inside."""

import os
import sys
from typing import NoReturn

from cyclopts import App, CycloptsError

import widefield
from widefield.cli.audit import audit
from widefield.cli.bench import bench
from widefield.cli.demo import demo
from widefield.cli.embed import embed
from widefield.cli.export import export
from widefield.cli.lab import lab
from widefield.cli.plan import plan
from widefield.cli.pretrain import pretrain
from widefield.cli.probe import probe

COMMANDS = (demo, plan, pretrain, probe, audit, embed, export, lab, bench)


def build_app() -> App:
    """The command line as it stands, without running anything."""
    app = App(
        name="widefield",
        help=f"{widefield.__doc__}\n\nEvery command takes --json for machines. Bad input ends in "
        "one line and exit code 2; --debug shows where it came from.",
        version=widefield.__version__,
        help_format="plaintext",
    )
    for command in COMMANDS:
        app.command(command)
    return app


def main() -> NoReturn:
    """Run the command that the user typed, and exit."""
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    try:
        build_app()(words, exit_on_error=False, print_error=False)
    except (ValueError, CycloptsError) as error:
        if debug:
            raise
        _quit(str(error), 2)
    except KeyboardInterrupt:
        _quit("interrupted", 130)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    raise SystemExit(0)


def _quit(message: str, code: int) -> NoReturn:
    rank = int(os.environ.get("RANK", 0))  # where torchrun started several
    who = f"widefield [rank {rank}]" if rank else "widefield"
    print(f"{who}: {' '.join(message.split())}", file=sys.stderr)
    raise SystemExit(code) from None
