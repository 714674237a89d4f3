"""Kill every command that writes, at every step in which it touches a file.

    python tests/kills.py
    python tests/kills.py --most 5    # so many kills a command, spread over its steps
    python tests/kills.py --ends full # the disk is full from that step on, instead
    python tests/kills.py --command lab --json FILE    # this one anew; FILE keeps the others

A command is forked from this process and dies by SIGKILL just before it opens a file to write,
renames, removes or makes something. What it was to write is then absent or whole, what was there
is as it was, and the same command ends as if it had not been killed. A killed training goes on
with `--resume`, or begins again where nothing had begun. On a disk that is full, no file can be
opened to write and no folder made: all that holds too, and the command ends in one line. An audit
whose page cannot be written prints its result before that line.
"""

import argparse
import errno
import importlib
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from unittest import mock

import numpy as np
import torch

import calls
from calls import TINY, World, call, content, problem_of_line
from forked import PRELOADED
from runs import images
from widefield.core.files import is_temp_file, write_atomically
from widefield.core.hardware import machine
from widefield.encoders import fit_readout, load_encoder, save_readout
from widefield.encoders.weights.model_folder import MODEL_FILES

End = Literal["killed", "full"]
"""How a command ends: by SIGKILL, or because the disk is full."""

TRAIN = f"pretrain data.npz --out new --epochs 2 {TINY}"
ADAPT = calls.COMMANDS["start"]
GROW = "pretrain more.npz --out young --resume --epochs 2"
MODEL = tuple(f"m/{name}" for name in MODEL_FILES)
TABLES = ("clusters", "duplicates", "neighbors", "outliers", "quality", "suspects")
PAGE = ("x.html", *(f"tab/{name}.{end}" for name in TABLES for end in ("csv", "parquet")))


class Killed(NamedTuple):
    """A command, and which files it is to write."""

    words: str
    outputs: tuple[str, ...]


COMMANDS: dict[str, Killed] = {
    "embed": Killed("embed run data.npz --out out/e.npz --max-examples 8", ("out/e.npz",)),
    "embed a table": Killed("embed run data.npz --out e.parquet --max-examples 8", ("e.parquet",)),
    "export": Killed("export run --out x.safetensors", ("x.safetensors", "x.json")),
    "export a folder": Killed("export plain --out m", MODEL),
    "explore": Killed(calls.COMMANDS["explore"], PAGE),
    "classify": Killed(calls.COMMANDS["classify"], ("p.csv", "p.html")),
    "audit": Killed("audit run data.npz --out page.html", ("page.html",)),
    "lab": Killed("lab downstream-angle --scale tiny --seed 0 --out f.svg", ("f.svg",)),
    "probe": Killed(
        "probe run data.npz --train-data data.npz --no-floors --max-examples 16 --json", ()
    ),
    "pretrain": Killed(
        TRAIN, ("new/encoder.safetensors", "new/manifest.parquet", "new/readout.safetensors")
    ),
    "pretrain --init": Killed(
        ADAPT, ("new/encoder.safetensors", "new/init/encoder.json", "new/readout.safetensors")
    ),
    "pretrain --resume": Killed(
        GROW, ("young/encoder.safetensors", "young/manifest.parquet", "young/readout.safetensors")
    ),
}

_WRITES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"}
_NEEDS_ROOM = {"open", "os.mkdir"}


def _touches(event: str, arguments: tuple[Any, ...], folder: bytes) -> bool:
    """Return whether an audit event of Python's is about to change something below `folder`."""
    if event == "open":
        path, mode, flags = arguments
        if not (flags & (os.O_WRONLY | os.O_RDWR) or set(mode or "") & set("wxa+")):
            return False
    elif event in _WRITES:
        path = arguments[0]
    else:
        return False
    if not isinstance(path, str | bytes | os.PathLike):
        return False
    return os.path.abspath(os.fsencode(path)).startswith(folder)


def _in_child(act: Callable[[int], None]) -> tuple[int, bytes]:
    """Call `act` with the end of a pipe in a child; return how it ended, and what it wrote."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act(write)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), told


def run(words: str, folder: Path, deadly: int | None = None, full: bool = False) -> tuple[int, int]:
    """Run a command in `folder`, to die at its step `deadly`; return its end and its steps.

    With `full` it finds the disk full from that step on; its end is 2 if it ends in one line.
    """

    def act(pipe: int) -> None:
        steps, below = 0, os.fsencode(folder.resolve()) + b"/"
        os.chdir(folder)

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal steps
            if _touches(event, arguments, below):
                if deadly is not None and full and steps >= deadly and event in _NEEDS_ROOM:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])
                if steps == deadly and not full:
                    os.kill(os.getpid(), signal.SIGKILL)
                steps += 1

        sys.addaudithook(watch)
        outcome = call(words.split())
        assert outcome.code == 0 or full, outcome.err
        if full and words.startswith("audit ") and outcome.code and outcome.out:
            # A page that cannot be written at the end loses no result: it is printed, whole.
            assert outcome.out.startswith("run, scored on "), outcome.out
            assert "\ny: " in outcome.out, outcome.out
            assert "the report was not written" in outcome.out, outcome.out
            outcome = outcome._replace(out="")
        problem = problem_of_line(outcome)
        assert problem is None, problem
        with os.fdopen(pipe, "w") as file:
            json.dump([steps, [name for name in sys.modules if name not in loaded]], file)
        if outcome.code:
            os._exit(outcome.code)

    loaded = frozenset(sys.modules)
    ended, told = _in_child(act)
    steps, modules = json.loads(told) if told else (0, [])
    for name in modules:  # so that the children to come need not
        with suppress(ImportError):
            importlib.import_module(name)
    return ended, steps


def outputs(command: Killed, folder: Path) -> dict[str, bytes]:
    """Return what the command has written."""
    files = ((name, folder / name) for name in command.outputs)
    return {name: file.read_bytes() for name, file in files if file.exists()}


def problem_of(
    command: Killed, folder: Path, before: dict[str, Any], whole: dict[str, bytes]
) -> str | None:
    """Return what a killed command broke, in words; None for nothing."""
    after = content(folder)
    own = "young" if "--resume" in command.words else None  # a run may change what is its own
    before = {name: facts for name, facts in before.items() if Path(name).parts[0] != own}
    changed = [name for name, facts in before.items() if after.get(name) != facts]
    if changed:
        return f"{changed[0]} is not as it was"
    training = command.words.startswith("pretrain")
    written = outputs(command, folder)
    torn = [name for name, data in written.items() if data != whole[name]]
    if torn and not training:
        return f"{torn[0]} is torn"
    known = {*before, *command.outputs, *(str(Path(name).parent) for name in command.outputs)}
    strange = [name for name in after if name not in known and not is_temp_file(Path(name).name)]
    if strange and not training:
        return f"{strange[0]} is left behind"
    again = command.words
    if training and (folder / "new" / "run.yaml").exists():
        again = "pretrain data.npz --out new --resume"
    elif written and own is None:
        again += " --overwrite"
    ended, _ = run(again, folder)
    if ended != 0:
        return f"{again} ends with {ended}"
    wrong = [name for name, data in outputs(command, folder).items() if data != whole[name]]
    return f"{wrong[0]} is another one when the command is called again" if wrong else None


class Tally:
    """What became of the kills of one command."""

    def __init__(self) -> None:
        self.kills = self.whole = 0
        self.broken: list[str] = []


def play_command(
    command: Killed, world: World, folder: Path, most: int | None, ends: Sequence[End]
) -> Tally:
    """Kill a command at its steps, `most` of them at most, or let the disk be full from there."""
    tally = Tally()
    world.copy(folder)
    before = dict(content(folder))
    ended, steps = run(command.words, folder)
    assert ended == 0
    whole = outputs(command, folder)
    assert len(whole) == len(command.outputs)
    shutil.rmtree(folder)
    count = steps if most is None else min(most, steps)
    chosen = [(2 * i + 1) * steps // (2 * count) for i in range(count)]
    for step, end in itertools.product(chosen, ends):
        world.copy(folder)
        before = dict(content(folder))
        ended, _ = run(command.words, folder, step, full=end == "full")
        if ended not in ((0, 2) if end == "full" else (-signal.SIGKILL,)):
            tally.broken.append(f"step {step}: it ended with {ended}")
        else:
            tally.kills += 1
            tally.whole += len(outputs(command, folder)) == len(command.outputs)
            problem = problem_of(command, folder, before, whole)
            tally.broken += [] if problem is None else [f"step {step}: {problem}"]
        shutil.rmtree(folder)
    return tally


def _make(folder: Path) -> None:
    World(folder)
    np.savez(folder / "more.npz", **images(48))
    examples = torch.rand(40, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    save_readout(fit_readout(load_encoder(folder / "plain"), [examples]), folder / "plain")
    words = f"pretrain data.npz --out young --epochs 1 --head-storage disk {TINY}"
    home = Path.cwd()
    os.chdir(folder)
    outcome = call(words.replace("--max-examples 32 ", "").split())
    os.chdir(home)
    assert outcome.code == 0, outcome.err


def _keep(path: Path, tallies: dict[str, Tally], seconds: int, *, anew: bool) -> None:
    """Write the result, beside those of other commands that are in the file unless `anew`."""
    facts: dict[str, Any] = {"commands": {}, "seconds": 0}
    if not anew and path.exists():
        facts = json.loads(path.read_text())
    facts["commands"] |= {
        name: {"kills": tally.kills, "whole_after": tally.whole, "broken": len(tally.broken)}
        for name, tally in tallies.items()
    }
    facts |= {"seconds": facts["seconds"] + seconds, "machine": machine(torch.device("cpu"))}
    text = json.dumps(facts, indent=1) + "\n"
    write_atomically(path, lambda draft: draft.write_text(text))


def play(arguments: list[str] | None = None) -> int:
    """Kill all commands; return the exit code, 1 if something was broken."""
    parser = argparse.ArgumentParser(prog="python tests/kills.py")
    parser.add_argument("--most", type=int, help="kills a command at most; by default all")
    parser.add_argument("--ends", choices=get_args(End), nargs="+", default=["killed"])
    parser.add_argument("--command", choices=tuple(COMMANDS), action="append")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # before the first operation: a forked child keeps no other threads
    for name in PRELOADED:  # so that the children need not
        importlib.import_module(name)
    began, tallies = time.perf_counter(), {}
    with (
        tempfile.TemporaryDirectory(prefix="widefield-kills-") as folder,
        mock.patch.dict(os.environ, XDG_CACHE_HOME=str(Path(folder) / "cache")),
    ):
        world = World.__new__(World)
        world.folder = Path(folder) / "world"
        made, _ = _in_child(lambda pipe: _make(world.folder))  # in a child: it has threads
        assert made == 0
        for name in options.command or COMMANDS:
            case = Path(folder) / "case"
            tallies[name] = play_command(COMMANDS[name], world, case, options.most, options.ends)
            sys.stdout.write(f"{name}: {tallies[name].kills} kills\n")
            sys.stdout.flush()
            for problem in tallies[name].broken:
                sys.stdout.write(f"{name}, {problem}\n")
    kills, broken = (
        sum(tally.kills for tally in tallies.values()),
        sum(len(tally.broken) for tally in tallies.values()),
    )
    seconds = round(time.perf_counter() - began)
    sys.stdout.write(f"{len(tallies)} commands, {kills} kills, {broken} break a promise\n")
    if options.json is not None:
        _keep(options.json, tallies, seconds, anew=not options.command)
    return int(broken > 0)


if __name__ == "__main__":
    raise SystemExit(play())
