"""Kill a small training run at any instant, resume it, and see that it ends as if never killed.

    python tests/torture.py --kills 100
    python tests/torture.py --kills 1000 --json benchmarks/results/torture.json

The run trains a linear encoder and a head on disk, saving a checkpoint every few steps. It is
forked from this process, killed with SIGKILL and forked again to go on from its checkpoint. Its
end must equal that of a run that was left alone, bit for bit: weights, momentum, random state, and
every row with its moments and its step.

Instants are random; besides, one run each is killed at the points where it would hurt most.
"""

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import Tensor

from widefield.core.files import write_atomically
from widefield.core.hardware import machine
from widefield.head import DiskStorage, LazyAdamW, PerExampleHead
from widefield.head.storage.file import Index, Records, RowFile
from widefield.head.storage.journal import Journal, RecoverableRows

_EXAMPLES, _FEATURES, _DIM, _BATCH = 400, 6, 5, 25
_STEPS, _CHECKPOINT_EVERY = 96, 11  # out of step with the 16 batches of an epoch
_SEED = 0
"""Seed of the instants."""


class Checkpoint:
    """One file, replaced in one step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._draft = path.with_suffix(".draft")

    def save(self, state: dict[str, Any]) -> None:
        """Write a draft, then move it into place."""
        torch.save(state, self._draft)
        self.publish(self._draft)

    def publish(self, draft: Path) -> None:
        """Let the draft be the checkpoint."""
        os.replace(draft, self.path)

    def load(self) -> dict[str, Any] | None:
        """The last state saved, or None."""
        if not self.path.exists():
            return None
        state: dict[str, Any] = torch.load(self.path, weights_only=True)
        return state


def train(run: Path) -> None:
    """Train to the end from the last checkpoint in the folder `run`, and leave `end.pt` there."""
    checkpoint = Checkpoint(run / "last.pt")
    rates = torch.linspace(0.05, 0.001, _STEPS, dtype=torch.float64)
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(_EXAMPLES, _FEATURES, generator=generator)
    weight, momentum = torch.zeros(2, _FEATURES, _DIM)
    with closing(DiskStorage(run / "rows", _EXAMPLES, _DIM, seed=7)) as storage:
        head = PerExampleHead(
            _EXAMPLES,
            _DIM,
            loss=lambda gradient, rows: (gradient * rows).sum(),
            normalize=False,
            init="random",
            storage=storage,
        )
        optimizer, state = LazyAdamW(head), checkpoint.load()
        if state is not None:
            head.load_state_dict(state["head"])
            generator.set_state(state["generator"])
            weight, momentum = state["weight"], state["momentum"]
        elif (run / "rows").exists():
            shutil.rmtree(run / "rows")  # it died before its first checkpoint
        steps = range(1 + (state["step"] if state else 0), _STEPS + 1)
        storage.prefetch(map(_batch, steps))
        for step in steps:
            index = _batch(step)
            view = x[index] + 0.1 * torch.randn(_BATCH, _FEATURES, generator=generator)
            rows = head.rows(index)
            difference = view @ weight - torch.tanh(rows)
            gradient = torch.tanh(rows) ** 3 - difference
            optimizer.param_groups[0]["lr"] = float(rates[step - 1])
            head(gradient, index).backward()
            optimizer.step()
            momentum = 0.9 * momentum + view.T @ difference / _BATCH
            weight = weight - 0.05 * momentum
            if step % _CHECKPOINT_EVERY == 0 or step == _STEPS:
                state = {"weight": weight, "momentum": momentum, "step": step}
                state |= {"generator": generator.get_state(), "head": head.state_dict()}
                checkpoint.save(state)
                storage.remove_old()
        end = storage.read(torch.arange(_EXAMPLES))
    rows_at_end = {name: getattr(end, name) for name in ("row", "m", "v", "last")}
    players = {"weight": weight, "momentum": momentum, "generator": generator.get_state()}
    Checkpoint(run / "end.pt").save({"rows": rows_at_end, "players": players})


def _batch(step: int) -> Tensor:
    """Examples of step 1, 2, ...: shuffled anew in every epoch."""
    epoch, at = divmod(step - 1, _EXAMPLES // _BATCH)
    order = torch.randperm(_EXAMPLES, generator=torch.Generator().manual_seed(epoch))
    return order[at * _BATCH : (at + 1) * _BATCH]


# The points where a kill would hurt most: each function does half of a call's work and dies.


def _die(*_: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returned")


_write = RowFile.write


def _die_in_a_row_write(file: RowFile, index: Index, records: Records) -> NoReturn:
    """Half of the rows are new, and one has its new moments beside its old step and values."""
    half, width = len(index) // 2, records.shape[1]
    torn = file.read(index[half : half + 1])
    torn[:, width // 2 :] = records[half : half + 1, width // 2 :]
    _write(file, index[:half], records[:half])
    _write(file, index[half : half + 1], torn)
    _die()


_write_journal = Journal._write


def _die_in_a_journal_append(journal: Journal, parts: list[memoryview], at: int) -> NoReturn:
    data = memoryview(b"".join(parts))
    _write_journal(journal, [data[: len(data) // 2]], at)
    _die()


def _die_in_a_journal_creation(journal: Journal, spare: Path, mark: str) -> NoReturn:
    with open(spare, "r+b" if spare.exists() else "wb") as file:
        file.write(b"half a header")
    _die()


def _die_in_a_draft(checkpoint: Checkpoint, draft: Path) -> NoReturn:
    draft.write_bytes(draft.read_bytes()[:100])
    _die()


def _die_after_a_rename(checkpoint: Checkpoint, draft: Path) -> NoReturn:
    os.replace(draft, checkpoint.path)
    _die()


Fuse = tuple[type, str, Callable[..., NoReturn], int]
"""Class, method, what to do instead, and at which of the method's calls."""

_IN_EVERY_PART = (61, 62)  # contents, and the end that follows; the head is written whole
_IN_A_WRITE: Fuse = (RowFile, "write", _die_in_a_row_write, 40)
_WEAK_POINTS: tuple[tuple[Fuse, ...], ...] = (
    (_IN_A_WRITE,),
    ((Journal, "append", _die, 40),),
    *(((Journal, "_write", _die_in_a_journal_append, call),) for call in _IN_EVERY_PART),
    ((RecoverableRows, "snapshot", _die, 3),),
    ((Journal, "create", _die_in_a_journal_creation, 3),),
    ((Checkpoint, "save", _die, 3),),
    ((Checkpoint, "publish", _die_in_a_draft, 3),),
    ((Checkpoint, "publish", _die, 3),),
    ((Checkpoint, "publish", _die_after_a_rename, 3),),
    ((RecoverableRows, "remove_old", _die, 3),),
    (_IN_A_WRITE, (RowFile, "write", _die_in_a_row_write, 3)),  # the second is in the recovery
    (_IN_A_WRITE, (Journal, "clear", _die, 1)),
    ((Checkpoint, "save", _die, 3), (Journal, "undo", _die, 2)),  # the first of two is undone
)
"""Kills, one run each; a second one hits the process that resumed."""


def _fork(run: Path, fuse: Fuse | None = None) -> int:
    """Begin to train in a child, which dies by `fuse`; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with _fused(fuse) if fuse else nullcontext():
            train(run)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _fused(fuse: Fuse) -> Any:
    owner, name, deadly, passage = fuse
    original, calls = getattr(owner, name), iter(range(1, sys.maxsize))

    def counted(*args: Any) -> Any:
        return (deadly if next(calls) == passage else original)(*args)

    return mock.patch.object(owner, name, counted)


def _killed(pid: int) -> bool:
    """Wait for a child; False if it came to its end alive.

    Raises:
        RuntimeError: it failed on its own.
    """
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError("a run failed where it should have gone on: see above")
    return code != 0


def _kill_at_random(run: Path, seconds: float, rng: random.Random) -> None:
    """Kill a run at an instant of its `seconds`; one that was faster begins again."""
    while True:
        pid = _fork(run)
        time.sleep(rng.uniform(0, seconds))
        os.kill(pid, signal.SIGKILL)
        if _killed(pid):
            return
        shutil.rmtree(run)
        run.mkdir()


class Tally:
    """Counts kills, endings that equal the unkilled run's, and rows that differ from its rows."""

    def __init__(self, whole: Path) -> None:
        self._whole: dict[str, Any] = torch.load(whole / "end.pt", weights_only=True)
        self.kills = self.identical = self.lost = 0

    def add(self, run: Path) -> None:
        """Resume a killed run, let it end, and compare."""
        assert not _killed(_fork(run))
        end = torch.load(run / "end.pt", weights_only=True)
        same = torch.ones(_EXAMPLES, dtype=torch.bool)
        for name, theirs in self._whole["rows"].items():
            same &= (end["rows"][name] == theirs).reshape(_EXAMPLES, -1).all(1)
        lost = int((~same).sum())
        players = self._whole["players"]
        equal = all(torch.equal(end["players"][k], v) for k, v in players.items())
        self.kills, self.lost = self.kills + 1, self.lost + lost
        self.identical += equal and lost == 0

    def line(self) -> str:
        """The tally in words."""
        return f"{self.kills} kills, {self.identical} identical endings, {self.lost} lost rows"

    def facts(self) -> dict[str, int]:
        """The tally as plain values."""
        return {"kills": self.kills, "identical": self.identical, "lost_rows": self.lost}


def _write_result(file: Path, facts: dict[str, Any]) -> None:
    text = json.dumps(facts | {"machine": machine(torch.device("cpu"))}, indent=1) + "\n"
    write_atomically(file, lambda draft: draft.write_text(text))


def main(arguments: list[str] | None = None) -> int:
    """Run the torture; returns the exit code, 1 if an ending differs."""
    parser = argparse.ArgumentParser(prog="python tests/torture.py")
    parser.add_argument("--kills", type=int, default=100, help="kills at random instants")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # before the first operation: a forked child keeps no other threads
    importlib.import_module("torch._dynamo")  # a second, by the first step of an optimizer
    rng, start = random.Random(_SEED), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="widefield-torture-") as folder:
        runs = iter(Path(folder) / str(number) for number in range(sys.maxsize))
        whole, began = _new(runs), time.perf_counter()
        assert not _killed(_fork(whole))
        seconds = time.perf_counter() - began
        tally, points = Tally(whole), Tally(whole)
        for fuses in _WEAK_POINTS:
            run = _new(runs)
            for fuse in fuses:
                assert _killed(_fork(run, fuse)), f"{fuse[1]} was not reached"
            points.add(run)
        for _ in range(options.kills):
            run = _new(runs)
            _kill_at_random(run, seconds, rng)
            tally.add(run)
            shutil.rmtree(run)
    sys.stdout.write(f"at weak points: {points.line()}\n{tally.line()}\n")
    if options.json is not None:
        facts = {"at_random": tally.facts(), "at_weak_points": points.facts(), "seed": _SEED}
        _write_result(options.json, facts | {"seconds": round(time.perf_counter() - start)})
    return int(any(t.identical < t.kills for t in (tally, points)))


def _new(runs: Iterator[Path]) -> Path:
    run = next(runs)
    run.mkdir()
    return run


if __name__ == "__main__":
    raise SystemExit(main())
