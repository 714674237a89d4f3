"""`widefield completion`."""

import re
from typing import Literal

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: Shell, /) -> None:
    """Print a script by which a shell completes commands, options, their choices and files.

    Args:
        shell: Print it for this shell.
    """
    from widefield.cli.app import build_app

    print(with_files(build_app([]).generate_completion(shell=shell), shell))


def with_files(script: str, shell: Shell) -> str:
    """Let the shell complete files wherever cyclopts' script has nothing to offer.

    Data, runs and encoders are words to cyclopts and files to their users.
    """
    if shell == "bash":  # which quotes the names that it completes itself
        script = script.replace('COMPREPLY=( $(compgen -f -- "${cur}") )', "COMPREPLY=()")
        return script.replace("complete -F", "complete -o bashdefault -o default -F")
    if shell == "zsh":
        return re.sub(r"'(\d+):((?:[^':\\]|\\.|'\\'')*)'", r"'\1:\2:_files'", script)
    return script
