"""The `widefield` command: parses, calls, prints. One file per command; heavy imports inside."""

import os
import sys
from typing import NoReturn

from widefield.cli.process import (
    Ending,
    finish_output,
    limit_memory,
    mend_streams,
    print_error,
    take_granted_cpus,
)


def main() -> NoReturn:
    """Run the command that the user typed, and exit."""
    ending = Ending()
    words = [word for word in sys.argv[1:] if word != "--debug"]
    debug = len(words) < len(sys.argv) - 1
    try:
        try:
            ending.listen()
            mend_streams()
            limit_memory()
            take_granted_cpus()
            _run(words)
        finally:
            ending.is_over()  # before the line is made, which a signal would cut off
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        raise SystemExit(0) from None
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if ending.signal:  # whatever a library made of the exception that a signal raised
            _quit(ending.line, ending.code)
        from widefield.cli.errors import line_of

        line = line_of(error)
        if line is None or debug:
            raise
        _quit(line, 2)
    raise SystemExit(0)


def _run(words: list[str]) -> None:
    from widefield.cli.app import build_app  # under the care of `main`: it takes a while

    build_app(words)(words, exit_on_error=False, print_error=False)
    finish_output()


def _quit(message: str, code: int) -> NoReturn:
    rank = os.environ.get("RANK", "0")  # where torchrun started several
    who = "widefield" if rank == "0" else f"widefield [rank {rank}]"
    print_error(f"{who}: {message}")
    raise SystemExit(code) from None
