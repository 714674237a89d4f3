"""The `widefield` command, with heavy imports inside functions."""

import os
import sys
from typing import NoReturn

from widefield.cli.process import (
    SignalExit,
    finish_output,
    fix_streams,
    limit_memory,
    limit_threads,
    print_error,
)


def main() -> NoReturn:
    """Run the command that the user typed, and exit."""
    exit_handler = SignalExit()
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    try:
        try:
            exit_handler.install()
            fix_streams()
            limit_memory()
            limit_threads()
            _run(words)
        finally:
            exit_handler.ignore_signals()  # so that a signal does not cut off the line
    except BrokenPipeError:  # the reader of the output ended, such as `| head`
        raise SystemExit(0) from None
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if exit_handler.signal:  # a library may have replaced the exception of the signal
            _exit(exit_handler.line, exit_handler.code)
        from widefield.cli.errors import line_of

        line = line_of(error)
        if line is None or debug:
            raise
        _exit(line, 2)
    raise SystemExit(0)


def _run(words: list[str]) -> None:
    # Slow, so that `main` has to handle signals first.
    from widefield.cli.app import build_app
    from widefield.cli.recipe_options import PYTHON_ONLY
    from widefield.core.errors import command_line

    with command_line(PYTHON_ONLY):
        build_app(words)(words, exit_on_error=False, print_error=False)
    finish_output()


def _exit(message: str, code: int) -> NoReturn:
    rank = os.environ.get("RANK", "0")  # set by torchrun
    program = "widefield" if rank == "0" else f"widefield [rank {rank}]"
    print_error(f"{program}: {message}")
    raise SystemExit(code) from None
