"""Commands and files as nobody should give them, made by a grammar; each case is a function of one
number.

    python tests/calls.py --cases 5000
    python tests/calls.py --first 1234 --cases 1    # one of them again

A case writes a folder of data, a run, weights and an audit, damages something in it or in the
command, calls the command in this process, and looks at what came of it: exit code 0, or 2 with one
line that can be read; no other exception, nothing that hangs, and after a refusal every file is as
it was.
"""

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from PIL import Image

import made_audit
import pictures
import waves
from damage import DAMAGE, ODD, edit_json, edit_text
from runs import images
from widefield.cli import main
from widefield.core.files import write_atomically
from widefield.core.hardware import machine
from widefield.core.names import LONGEST
from widefield.encoders import build_encoder, save_encoder
from widefield.workflows.pretrain import pretrain

SECONDS, PATIENCE = 60, 900
"""A case hangs that takes so long of the processor, or so long on a busy machine; most take one."""

TINY = (
    "--max-examples 32 --batch-size 16 --image-size 16 --encoder resnet-tiny --checkpoint-every 1"
)
TINY += " --projector-width 8 --projector-dim 8 --device cpu --precision 32"
FEWER = TINY.replace("--max-examples 32", "--max-examples 24")

ADAPT = (
    "--max-examples 32 --batch-size 16 --checkpoint-every 1 --projector-width 8 --projector-dim 8"
)
ADAPT += " --device cpu --precision 32"

LABELS = "path,label\n" + "".join(f"row {i},{'red' if i % 2 == 0 else 'blue'}\n" for i in range(8))

DECISIONS = "path,decision\n" + "".join(
    f"row {i},{'exclude' if i % 4 == 0 else 'keep'}\n" for i in range(8)
)

COMMANDS: dict[str, str] = {
    "pretrain": f"pretrain data.npz --out new --epochs 1 {TINY}",
    "resume": "pretrain data.npz --out run --resume --epochs 2",
    "finished": "pretrain data.npz --out run --resume",
    "probe": "probe run data.npz --train-data data.npz --no-floors --max-examples 16 --task y",
    "embed": "embed run data.npz --out e.npz --max-examples 8",
    "weights": "embed w.pth@resnet-tiny data.npz --out e.parquet --max-examples 8",
    "export": "export run --out e.safetensors",
    "card": "export plain --out m --audit audit.json",
    "audit": "audit pixels data.npz --out page.html",
    "classify": "classify run data.npz --labels labels.csv --out p.csv",
    "exclude": f"pretrain data.npz --out new --epochs 1 --exclude decisions.csv {FEWER}",
    "teacher": f"pretrain data.npz --out new --epochs 1 --teacher run {TINY}",
    "search": "search run data.npz --image query.png --out s.html",
    "explore": "explore run data.npz --out x.html --tables tab --max-examples 24",
    "recover": "recover run --out r --epochs 1",
    "start": f"pretrain data.npz --out new --epochs 1 --init run {ADAPT}",
    "plan": f"plan data.npz --epochs 1 {TINY}",
    "lab": "lab downstream-angle --scale tiny --seed 0 --out f.svg",
    "demo": "demo --out taken --seed 0",
}
"""What is damaged: calls that succeed, but for the last, which would take long."""

OPTIONS = (
    "--method",
    "--views",
    "--seed",
    "--lr",
    "--recipe",
    "--gather-distributed",
    "--head-storage",
    "--json",
)
OPTIONS += (
    "--overwrite",
    "--features",
    "--queue-size",
    "--max-examples",
    "--batch-size",
    "--epochs",
)
OPTIONS += (
    "--init",
    "--init-lr-scale",
    "--freeze-blocks",
    "--layer-decay",
    "--head-moments",
    "--seconds",
    "--suggest",
    "--tables",
    "--exclude",
    "--teacher",
    "--group",
)


class Hang(BaseException):
    """A case takes too long."""


class Outcome(NamedTuple):
    """What came of a call."""

    code: int
    out: str
    err: str


class World:
    """A folder with data, a run, weights and an audit, which each case gets a copy of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        np.savez(folder / "data.npz", **images(32))
        words = iter(TINY.split())
        settings = {
            name[2:].replace("-", "_"): value for name, value in zip(words, words, strict=True)
        }
        numbers = {name: int(x) if x.isdigit() else x for name, x in settings.items()}
        numbers["precision"] = "32"
        pretrain(folder / "data.npz", out=folder / "run", epochs=1, quiet=True, **numbers)
        torch.save(build_encoder("resnet-tiny", seed=0).backbone.state_dict(), folder / "w.pth")
        save_encoder(build_encoder("mobilenetv3_small_050", seed=0), folder / "plain")
        (folder / "audit.json").write_text(json.dumps(made_audit.whole().to_json()))
        (folder / "labels.csv").write_text(LABELS)
        (folder / "decisions.csv").write_text(DECISIONS)
        Image.fromarray(images(32)["x"][0]).save(folder / "query.png")
        (folder / "taken").mkdir()
        for name in ("taken/mine.txt", "taken.npz", "x.svg", "e.json"):
            (folder / name).write_text("mine")
        (folder / "dangling").symlink_to("gone")

    def copy(self, target: Path) -> None:
        """Make a case's own copy."""
        shutil.copytree(self.folder, target, symlinks=True)


def damaged_words(rng: random.Random) -> list[str]:
    """Return a call with odd words in it, or too few, too many, or another order."""
    words = COMMANDS[rng.choice(list(COMMANDS))].split()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.randrange(1, len(words) + 1)
        match rng.randrange(5):
            case 0 | 1 if place < len(words):
                words[place] = rng.choice(ODD)
            case 2:
                words.insert(place, rng.choice(ODD))
            case 3:
                words[place:place] = [rng.choice(OPTIONS), rng.choice(ODD)]
            case _ if len(words) > 2:
                del words[place - 1 if place > 1 else 1]
    # Some words would begin minutes of sound work: a tour, a planted audit, a larger run.
    return [] if words[0] == "demo" and "taken" not in words else words


READERS = {
    "run/run.yaml": ("resume", "finished", "probe", "embed", "export", "start", "recover"),
    "run/manifest.parquet": ("resume", "finished", "probe", "recover"),
    "run/metrics.csv": ("resume", "finished"),
    "run/checkpoints/last.pt": ("resume", "finished"),
    "run/checkpoints/last-step-2-rank-0-of-1.pt": ("resume", "finished"),
    "run/encoder.safetensors": ("probe", "embed", "export", "explore", "start"),
    "run/projector.safetensors": ("embed", "probe"),
    "run/encoder.json": ("export", "embed", "start"),
    "w.pth": ("weights",),
    "audit.json": ("card",),
    "labels.csv": ("classify",),
    "decisions.csv": ("exclude",),
    "query.png": ("search",),
}
"""Which calls read each file; `data.npz` has a grammar of its own."""

TEXTS = ("run/run.yaml", "run/metrics.csv", "labels.csv", "decisions.csv")
JSONS = ("audit.json",)


def damaged_file(folder: Path, rng: random.Random) -> list[str]:
    """Damage a file in `folder`, and return a call that reads it."""
    name = rng.choice(list(READERS))
    kinds = list(DAMAGE)
    kinds += [edit_text] * 12 if name in TEXTS else []
    kinds += [edit_json] * 20 if name in JSONS else []
    rng.choice(kinds)(folder / name, rng)
    words = COMMANDS[rng.choice(READERS[name])].split()
    if name.endswith("projector.safetensors"):
        words += ["--features", "projected"]
    return words


def content(folder: Path) -> Mapping[str, tuple[Any, ...]]:
    """Return what is in a folder; two states are equal where nothing was written or removed."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        file = not path.is_dir() or path.is_symlink()
        found[str(path.relative_to(folder))] = (
            (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns) if file else ()
        )
    return found


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise Hang

    limits = [
        (signal.SIGPROF, signal.ITIMER_PROF, SECONDS),
        (signal.SIGALRM, signal.ITIMER_REAL, PATIENCE),
    ]
    before = [signal.signal(sign, end) for sign, _, _ in limits]
    for _, timer, seconds in limits:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (sign, timer, _), handler in zip(limits, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(sign, handler)


def call(words: Sequence[str]) -> Outcome:
    """Call `widefield WORDS` in this process; whatever it raises but SystemExit comes through."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch("sys.argv", ["widefield", *words]),
        mock.patch("widefield.cli.limit_memory"),  # this process has more to do
        mock.patch("widefield.core.hardware.keep_freed_memory"),
        mock.patch("widefield.audits.bounds.CEILING_STEPS", 4),  # of a ceiling, which takes seconds
        mock.patch("widefield.audits.tasks.NUM_SEEDS", 1),
        mock.patch("widefield.probes.few_labels.L2_GRID", (1e-2,)),
        mock.patch("os.fsync"),  # the end of a process loses nothing that was written
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        time_limit(),
    ):
        try:
            main()
        except SystemExit as ended:
            return Outcome(int(ended.code or 0), out.getvalue(), err.getvalue())


def problem_of(outcome: Outcome, before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Return which promise an outcome breaks, in words; None if it keeps them all.

    A training whose weights stop being numbers ends after steps, and its own folder tells why.
    """
    problem = problem_of_line(outcome)
    if problem is None and outcome.code:
        if "weights are NaN or infinite after step" in outcome.err:
            after = {name: facts for name, facts in after.items() if Path(name).parts[0] != "new"}
        if before != after:
            return "refused, and left the folder changed"
    return problem


def problem_of_line(outcome: Outcome) -> str | None:
    """Return what is wrong with what a call said, in words; None if nothing is."""
    if outcome.code == 0:
        return None
    lines = [line for line in outcome.err.splitlines() if line.startswith("widefield: ")]
    if outcome.code != 2:
        return f"exit code {outcome.code}"
    if len(lines) != 1 or not outcome.err.endswith(f"{lines[0]}\n"):
        return f"no line at the end: {outcome.err[-300:]!r}"
    if len(lines[0]) > LONGEST + len("widefield: ") or not lines[0].isprintable():
        return f"a line that cannot be read: {lines[0]!r}"
    if outcome.out:
        return f"refused, and printed {outcome.out[:200]!r}"
    return None


def run_case(number: int, world: World, folder: Path) -> tuple[list[str], str | None]:
    """Play case `number` in `folder`; return the call and which promise it breaks."""
    rng = random.Random(number)
    world.copy(folder)
    check: Callable[[Path], str | None] | None = None
    if number % 4 == 3:
        make = pictures.strange_picture if number % 8 == 3 else waves.strange_signal
        words, check = make(folder, rng)
    else:
        words = damaged_words(rng) if number % 2 else damaged_file(folder, rng)
    before, home = content(folder), Path.cwd()
    os.chdir(folder)
    try:
        outcome = call(words)
        problem = problem_of(outcome, before, content(folder))
        if problem is None and check is not None:
            refused = f"refused what is sound: {outcome.err[-300:]!r}"
            problem = refused if outcome.code else check(folder / "seen.npz")
        return words, problem
    except Hang:
        return words, f"hangs for {SECONDS} s of the processor, or {PATIENCE} s"
    except Exception:
        return words, traceback.format_exc()
    finally:
        os.chdir(home)
        shutil.rmtree(folder)


def run_cases(numbers: Sequence[int], folder: Path) -> list[str]:
    """Play many cases; return what is broken, a text each."""
    world = World(folder / "world")
    broken = []
    with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "cache")):
        for number in numbers:
            words, problem = run_case(number, world, folder / "case")
            if problem is not None:
                broken.append(f"case {number}: widefield {' '.join(map(repr, words))}\n{problem}")
    return broken


KINDS = {
    "tracebacks": "Traceback (most",
    "hangs": "hangs for",
    "silent_misreadings": "\nmisread:",
    "lost_files": "left the folder changed",
}
"""Kinds of broken promises, and a sign of each in its text."""


def counts(broken: Sequence[str]) -> dict[str, int]:
    """Return how many promises of each kind are broken."""
    found = {kind: sum(sign in text for text in broken) for kind, sign in KINDS.items()}
    return found | {"others": len(broken) - sum(found.values())}


def play(arguments: list[str] | None = None) -> int:
    """Play the cases that are asked for; return the exit code, 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python tests/calls.py")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="widefield-hostile-") as folder:
        numbers = range(options.first, options.first + options.cases)
        broken = run_cases(numbers, Path(folder))
    seconds = time.perf_counter() - began
    sys.stdout.write("\n".join(broken) + "\n" if broken else "")
    sys.stdout.write(f"{options.cases} calls, {len(broken)} break a promise, {seconds:.0f} s\n")
    if options.json is not None:
        facts = {"calls": options.cases, "first_seed": options.first, **counts(broken)}
        facts |= {"seconds": round(seconds), "machine": machine(torch.device("cpu"))}
        text = json.dumps(facts, indent=1) + "\n"
        write_atomically(options.json, lambda draft: draft.write_text(text))
    return int(bool(broken))


if __name__ == "__main__":
    raise SystemExit(play())
