"""A checkpoint is whole or absent; nothing in the file is executed."""

import errno
import pickle
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from widefield.core.types import Shard
from widefield.train import checkpoint

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
        SafetensorError("Error while serializing: I/O error: No space left on device"),
    ],
)
def test_full_disk_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"step": 1})

    def fail(state: object, target: Path) -> None:
        target.write_bytes(b"half")
        raise error

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(ValueError, match=r"no space left.*resume=True"):
        checkpoint.save(path, {"step": 2})
    monkeypatch.undo()
    assert checkpoint.load(path, CPU)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ((), "there is no checkpoint yet; make room and run again$"),
        (("run.yaml",), "there is no checkpoint yet; make room and run again with resume=True$"),
        (
            ("run.yaml", "checkpoints/last.pt"),
            "checkpoint is whole; .* run again with resume=True$",
        ),
    ],
)
def test_a_full_disk_says_how_to_go_on_from_what_there_is(
    tmp_path: Path, there: tuple[str, ...], words: str
) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in there:
        (tmp_path / name).touch()
    last = tmp_path / "checkpoints" / "last.pt"
    with pytest.raises(ValueError, match=words), checkpoint.disk_full_errors(tmp_path, last=last):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("world", "loss"), [(2, 4.0), (1, 3.0)])
def test_the_sums_of_an_epoch_are_each_ranks_own_or_the_mean_of_all(
    tmp_path: Path, world: int, loss: float
) -> None:
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"step": 7, "world": 2, "model": {}})
    for rank in range(2):
        sums = {"count": torch.tensor(3.0), "loss": torch.tensor(2.0 + 2 * rank)}
        own = {"extra": {}, "random": {}, "sums": sums}
        checkpoint.save(checkpoint.rank_file(path, 7, Shard(rank, 2)), own)
    back = checkpoint.load_sharded(path, Shard(world - 1, world))["sums"]
    assert {name: float(value) for name, value in back.items()} == {"count": 3.0, "loss": loss}


class Bomb:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemError('executed')",)


def test_pickled_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    with path.open("wb") as f:
        pickle.dump(Bomb(), f, protocol=2)
    with pytest.raises(ValueError, match="not a whole widefield checkpoint"):
        checkpoint.load(path, CPU)
