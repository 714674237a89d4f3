"""A run that was stopped and resumed ends with the weights of the run that was not."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from widefield.encoders import load_encoder
from widefield.rows import FolderLock
from widefield.train.loop import Pulse
from widefield.train.progress import read_metrics
from widefield.workflows import pretrain as module
from widefield.workflows.pretrain import pretrain

SMALL = {
    "limit": 64,
    "batch_size": 16,
    "image_size": 16,
    "epochs": 4,
    "checkpoint_every": 1,
    "health_every": 2,
    "projector_width": 32,
    "projector_dim": 16,
    "encoder": "resnet-tiny",
    "quiet": True,
}


def weights(run: Path) -> dict[str, Tensor]:
    return load_encoder(run).state_dict()


def assert_same(one: Path, two: Path) -> None:
    a, b = weights(one), weights(two)
    assert a.keys() == b.keys()
    for key, value in a.items():
        assert torch.equal(value, b[key]), key
    first, second = ((run / "metrics.csv").read_text().splitlines() for run in (one, two))
    columns = first[0].split(",")
    timed = {columns.index("images_per_second"), columns.index("data_wait")}
    for x, y in zip(first, second, strict=True):
        kept = [[v for i, v in enumerate(row.split(",")) if i not in timed] for row in (x, y)]
        assert kept[0] == kept[1]


class Killed(Exception):
    pass


@pytest.mark.parametrize(
    ("method", "place"),
    [
        ("s-diet", "host"),
        ("s-diet", "disk"),
        ("diet", "auto"),
        ("simclr", "auto"),
        ("supervised", "auto"),
    ],
)
@pytest.mark.parametrize("after", [1, 3])
def test_killed_after_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, place: str, after: int
) -> None:
    """The process dies after epoch `after`'s checkpoint, in the middle of the next epoch."""
    data = "photos+digits"
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pretrain(data, out=whole, method=method, **SMALL)

    def die(self: object, pulse: Pulse) -> None:
        if pulse.epoch == after and pulse.step == after * 4 + 2:
            raise Killed

    monkeypatch.setattr(module.Session, "_on_step", die)
    with pytest.raises(Killed):
        pretrain(data, out=broken, method=method, row_store=place, **SMALL)
    monkeypatch.undo()
    pretrain(data, out=broken, resume=True, quiet=True)
    assert_same(whole, broken)  # and rows on disk train as rows in memory do
    assert (broken / "rows" / "0-of-1" / "rows.bin").exists() == (place == "disk")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    pretrain("photos", out=run, **{**SMALL, "epochs": 3})
    return run


@pytest.mark.parametrize("file", ["last-step-8-rank-0-of-1.pt", "last.pt"])
@pytest.mark.parametrize("done", [False, True])
def test_killed_inside_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole_run: Path, file: str, done: bool
) -> None:
    """The second one: before or after one of its files gets its name."""
    broken, replace = tmp_path / "broken", os.replace

    def die(draft: Path, path: Path) -> None:
        second = (broken / "checkpoints" / "last.pt").exists()
        if Path(path).name != file or not second:
            return replace(draft, path)
        if done:
            replace(draft, path)
        raise Killed

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(Killed):
        pretrain("photos", out=broken, row_store="disk", **{**SMALL, "epochs": 3})
    monkeypatch.undo()
    pretrain("photos", out=broken, resume=True, quiet=True)
    assert_same(whole_run, broken)


@pytest.mark.parametrize(
    ("method", "views"), [("simclr", "viewmaker+flip"), ("s-diet", "mask-viewmaker")]
)
def test_both_players_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, views: str
) -> None:
    """Views that learn, stopped within an epoch, end as those that were not."""
    data, settings = "photos+digits", {**SMALL, "epochs": 3, "method": method, "views": views}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pretrain(data, out=whole, **settings)
    original = module.Session._on_step

    def interrupt(self: module.Session, pulse: Pulse) -> None:
        if pulse.step == 6:
            os.kill(os.getpid(), signal.SIGINT)
        original(self, pulse)

    monkeypatch.setattr(module.Session, "_on_step", interrupt)
    assert not pretrain(data, out=broken, **settings).finished
    monkeypatch.undo()
    pretrain(data, out=broken, resume=True, quiet=True)
    first, second = (
        torch.load(run / "checkpoints" / "last.pt", weights_only=True) for run in (whole, broken)
    )
    for player in ("views", "opponent", "objective", "optimizer"):
        torch.testing.assert_close(first[player], second[player], rtol=0, atol=0)
    rows = read_metrics(broken / "metrics.csv")
    assert [row["opponent_step"] for row in rows] == ["4", "8", "12"]
    assert {row["opponent_optimizer"] for row in rows} == {"adam"}
    assert {row["opponent_lr"] for row in rows} == {"0.001"}
    assert all(float(row["opponent_loss"]) > 0 for row in rows)
    assert (broken / "report.html").exists()


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_asked_to_stop_inside_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    settings = {**SMALL, "precision": precision}
    pretrain("photos", out=whole, **settings)
    original = module.Session._on_step

    def interrupt(self: module.Session, pulse: Pulse) -> None:
        if pulse.step == 6:
            os.kill(os.getpid(), signal.SIGINT)
        original(self, pulse)

    monkeypatch.setattr(module.Session, "_on_step", interrupt)
    stopped = pretrain("photos", out=broken, **settings)
    monkeypatch.undo()
    assert not stopped.finished
    assert stopped.steps == 6
    resumed = pretrain("photos", out=broken, resume=True, quiet=True)
    assert resumed.finished
    assert resumed.steps == 16
    assert torch.equal(
        weights(whole)["backbone.conv1.weight"], weights(broken)["backbone.conv1.weight"]
    )
    first, second = weights(whole), weights(broken)
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("place", ["host", "disk"])
def test_sigkill_then_resume(tmp_path: Path, place: str) -> None:
    """As a user would see it: kill -9, then --resume."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = "--limit 64 --batch-size 16 --image-size 16 --checkpoint-every 1 --epochs 12"
    words += " --encoder resnet-tiny --projector-width 32 --projector-dim 16 --health-every 12"
    words += f" --row-store {place}"
    command = [sys.executable, "-m", "widefield", "pretrain", "photos", *words.split()]
    subprocess.run([*command, "--out", whole], check=True, capture_output=True)
    process = subprocess.Popen(
        [*command, "--out", broken], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while not (broken / "checkpoints" / "last.pt").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    resumed = [sys.executable, "-m", "widefield", "pretrain", "photos", "--out", str(broken)]
    subprocess.run([*resumed, "--resume"], check=True, capture_output=True)
    first, second = weights(whole), weights(broken)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain("photos", out=run, **{**SMALL, "epochs": 1})
    pid = os.getpid()
    with (
        FolderLock(run),
        pytest.raises(ValueError, match=f"run is in use by process {pid}: wait for it to end"),
    ):
        pretrain("photos", out=run, resume=True, quiet=True)


@pytest.mark.parametrize(("place", "room"), [("disk", 1000), ("host", 300_000)])
def test_full_disk_stops_with_one_line_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, room: int
) -> None:
    """From the third epoch on no file grows beyond `room`: a journal, or a checkpoint."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pretrain("photos", out=whole, **SMALL)
    original = module.Session._on_step
    free = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self: module.Session, pulse: Pulse) -> None:
        if pulse.step == 9:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, free[1]))
        original(self, pulse)

    monkeypatch.setattr(module.Session, "_on_step", fill)
    try:
        with pytest.raises(ValueError, match=r"last checkpoint is whole; make room and run") as e:
            pretrain("photos", out=broken, row_store=place, **SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, free)
    assert "\n" not in str(e.value)
    monkeypatch.undo()
    pretrain("photos", out=broken, resume=True, quiet=True)
    assert_same(whole, broken)


@pytest.mark.parametrize("place", ["host", "disk"])
def test_killed_before_the_first_checkpoint_it_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pretrain("photos", out=whole, **SMALL)

    def die(self: object, pulse: Pulse) -> None:
        if pulse.step == 2:
            raise Killed

    monkeypatch.setattr(module.Session, "_on_step", die)
    with pytest.raises(Killed):
        pretrain("photos", out=broken, row_store=place, **SMALL)
    monkeypatch.undo()
    pretrain("photos", out=broken, resume=True, quiet=True)
    assert_same(whole, broken)


def test_a_folder_that_a_killed_run_had_only_locked_is_free(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", ".run.yaml.draft"):
        (run / name).touch()
    assert pretrain("photos", out=run, **{**SMALL, "epochs": 1}).finished


def paint(folder: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    for i in range(count):
        pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.png")


def test_resume_on_changed_data_is_refused_by_name(tmp_path: Path) -> None:
    photos, run = tmp_path / "mine", tmp_path / "run"
    photos.mkdir()
    paint(photos, 20)
    settings = {k: v for k, v in SMALL.items() if k not in ("limit", "epochs", "image_size")}
    pretrain(photos, out=run, epochs=1, **settings)
    (photos / "03.png").write_bytes((photos / "04.png").read_bytes())
    with pytest.raises(ValueError, match=r"03\.png has other pixels"):
        pretrain(photos, out=run, resume=True, quiet=True)
    (photos / "03.png").unlink()
    with pytest.raises(ValueError, match=r"03\.png is gone \(20 examples then, 19 now\)"):
        pretrain(photos, out=run, resume=True, quiet=True)


def test_resume_with_other_settings_is_refused_by_name(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain("photos", out=run, **{**SMALL, "epochs": 1})
    with pytest.raises(ValueError, match="has epochs 1, not 7"):
        pretrain("photos", out=run, resume=True, epochs=7, quiet=True)


def test_a_folder_with_another_run_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain("photos", out=run, **{**SMALL, "epochs": 1})
    before = weights(run)
    with pytest.raises(ValueError, match="already holds a run: go on with --resume"):
        pretrain("photos", out=run, **SMALL)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("keep me")
    with pytest.raises(ValueError, match="not an empty folder"):
        pretrain("photos", out=tmp_path / "letters", **SMALL)
    assert (tmp_path / "letters" / "mine.txt").read_text() == "keep me"
    assert all(torch.equal(before[key], weights(run)[key]) for key in before)


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run"):
        pretrain("photos", out=tmp_path / "nothing", resume=True, quiet=True)
