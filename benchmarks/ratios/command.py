"""A bench as a script: its keyword arguments as options, its result on the terminal or in files."""

import argparse
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from widefield.core.hardware import choose_device, keep_freed_memory, machine

Result = dict[str, Any]


def command(
    bench: Callable[..., Result], parts: Callable[[Result], dict[str, Result]] | None = None
) -> None:
    """Parse options for `bench`, run it, and print what it returns or write it as JSON.

    Where `parts` is given, `--into` writes the result as one file for each of its parts. Bad input,
    and a ratio that is not steady, exit with code 2 and one line; then no file is written.
    """
    summary = (inspect.getdoc(bench) or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(description=summary)
    taken = dict(inspect.signature(bench).parameters)
    taken.pop("seed", None)
    for name, parameter in taken.items():
        _add(parser, name, parameter.default)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to FILE")
    if parts is not None:
        parser.add_argument(
            "--into", type=Path, metavar="FOLDER", help="write a file for each method into FOLDER"
        )
    args = parser.parse_args()
    keep_freed_memory()
    try:
        result = bench(**{name: getattr(args, name) for name in taken})
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")
    result["machine"] = machine(choose_device("auto"))
    if args.json is not None:
        _write(args.json, result)
    if parts is not None and args.into is not None:
        for name, part in parts(result).items():
            _write(args.into / f"{name}.json", part)
    print(json.dumps(result, indent=2))


def _add(parser: argparse.ArgumentParser, name: str, default: Any) -> None:
    """Add the option of a parameter; one without a default stands in its place on the line."""
    if default is inspect.Parameter.empty:
        parser.add_argument(name)
        return
    many = {"nargs": "+"} if default is None or isinstance(default, tuple) else {}
    kind = {int: _positive, tuple: _positive, float: float}.get(type(default), str)
    about = f"default: {'all' if default is None else default}"
    parser.add_argument(
        f"--{name.replace('_', '-')}", type=kind, default=default, help=about, **many
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return int(text)


def _write(path: Path, result: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
