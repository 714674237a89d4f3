"""`widefield completion`."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script by which a shell completes commands, options and their values.

    Parameters
    ----------
    shell
        Print it for this shell.
    """
    from widefield.cli.app import build_app

    print(build_app([]).generate_completion(shell=shell))
