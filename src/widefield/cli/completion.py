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
    """Return the script with completion of files where cyclopts has none.

    Data, runs and encoders are files, but only words for cyclopts.
    """
    if shell == "bash":  # which quotes names only by its own completion
        script = script.replace('COMPREPLY=( $(compgen -f -- "${cur}") )', "COMPREPLY=()")
        return script.replace("complete -F", "complete -o bashdefault -o default -F")
    if shell == "zsh":
        return re.sub(r"'(\d+):((?:[^':\\]|\\.|'\\'')*)'", r"'\1:\2:_files'", script)
    return script
