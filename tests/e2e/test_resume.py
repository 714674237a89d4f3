"""A run that was stopped and resumed ends with the weights of the run that was not."""

import os
import resource
import shutil
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from forked import ForkedCommand
from runs import (
    SMALL,
    STEPS,
    Killed,
    assert_same,
    assert_same_weights,
    die_at,
    images,
    last_checkpoint,
    paint,
    signal_at,
    small,
    weights,
)
from widefield.config.defaults import DEFAULT_METHOD
from widefield.encoders import EncoderSettings
from widefield.head import FolderLock
from widefield.methods import METHODS
from widefield.train import checkpoint
from widefield.train.progress import read_metrics
from widefield.train.run_dir import RunFolder
from widefield.train.step import StepMetrics
from widefield.views import ViewSettings
from widefield.workflows.pretrain import pretrain
from widefield.workflows.probe import probe

IMAGES = images()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train a run that nothing stops, once for all tests that ask for it."""

    @cache
    def train(method: str = DEFAULT_METHOD, **settings: Any) -> Path:
        run = tmp_path_factory.mktemp("runs") / "whole"
        assert pretrain(IMAGES, out=run, **{**small(method), **settings}).finished
        return run

    return train


@pytest.mark.parametrize(
    ("method", "place", "after"),
    [
        ("row-contrast", "host", 1),
        ("row-contrast", "disk", 3),
        ("s-diet", "disk", 1),
        ("s-diet", "disk", 3),
        ("diet", None, 1),
        ("simclr", None, 3),
        ("supervised", None, 1),
    ],
)
def test_killed_after_an_epoch(
    tmp_path: Path, whole: Callable[..., Path], method: str, place: str | None, after: int
) -> None:
    """The process dies after epoch `after`'s checkpoint, in the middle of the next epoch."""
    broken, settings = tmp_path / "broken", small(method)
    if place is not None:
        settings["head_storage"] = place
    with pytest.raises(Killed):
        pretrain(IMAGES, out=broken, on_step=die_at(4 * after + 2), **settings)
    pretrain(IMAGES, out=broken, resume=True, quiet=True)
    assert_same(whole(method), broken)  # rows on disk train as rows in memory do
    assert (broken / "rows" / "0-of-1" / "rows.bin").exists() == (place == "disk")


@pytest.mark.parametrize("file", ["last-step-8-rank-0-of-1.pt", "last.pt"])
@pytest.mark.parametrize("done", [False, True])
def test_killed_inside_a_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: Callable[..., Path],
    file: str,
    done: bool,
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
        pretrain(IMAGES, out=broken, head_storage="disk", **SMALL)
    monkeypatch.undo()
    pretrain(IMAGES, out=broken, resume=True, quiet=True)
    assert_same(whole(), broken)


@pytest.mark.parametrize("epoch", [1, 4])
@pytest.mark.parametrize("file", ["encoder.json", "encoder.safetensors", "projector.safetensors"])
def test_killed_as_it_keeps_the_encoder_of_an_epoch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    whole: Callable[..., Path],
    file: str,
    epoch: int,
) -> None:
    """Before `file` gets its name; its draft is left behind."""
    broken, replace = tmp_path / "broken", os.replace
    kept = broken / "checkpoints" / f"epoch-{epoch:05d}"

    def die(draft: Path, path: Path) -> None:
        if Path(path).parent == kept and Path(path).name == file:
            shutil.copy(draft, kept / ".0123456789abcdef.draft")
            raise Killed
        replace(draft, path)

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(Killed):
        pretrain(IMAGES, out=broken, **SMALL)
    monkeypatch.undo()
    pretrain(IMAGES, out=broken, resume=True, quiet=True)
    assert kept_encoders(broken) == kept_encoders(whole())


def kept_encoders(run: Path) -> dict[str, bytes]:
    """What the run keeps of the ends of its epochs."""
    files = (run / "checkpoints").glob("epoch-*/*")
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


@pytest.mark.parametrize("place", ["host", "disk"])
def test_killed_before_the_first_checkpoint_it_begins_again(
    tmp_path: Path, whole: Callable[..., Path], place: str
) -> None:
    broken = tmp_path / "broken"
    with pytest.raises(Killed):
        pretrain(IMAGES, out=broken, on_step=die_at(2), head_storage=place, **SMALL)
    pretrain(IMAGES, out=broken, resume=True, quiet=True)
    assert_same(whole(), broken)


def test_a_folder_that_a_killed_run_had_only_locked_is_free(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", ".run.yaml.draft"):
        (run / name).touch()
    assert pretrain(IMAGES, out=run, **{**SMALL, "epochs": 1}).finished


@pytest.mark.parametrize(
    ("method", "views"), [("simclr", "viewmaker+flip"), ("s-diet", "mask-viewmaker")]
)
def test_both_players_go_on(tmp_path: Path, method: str, views: str) -> None:
    """Augmentation that learn, stopped within an epoch, end as those that were not."""
    data, settings = "photos+digits", {**small(method), "epochs": 2, "views": views}
    settings |= {"max_examples": 32}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    pretrain(data, out=whole, **settings)
    with pytest.raises(KeyboardInterrupt):
        pretrain(data, out=broken, on_step=signal_at(3), **settings)
    pretrain(data, out=broken, resume=True, quiet=True)
    first, second = last_checkpoint(whole), last_checkpoint(broken)
    for player in ("views", "adversary", "model", "optimizer"):
        torch.testing.assert_close(first[player], second[player], rtol=0, atol=0)
    rows = read_metrics(broken / "metrics.csv")
    assert [row["adversary_step"] for row in rows] == ["2", "4"]
    assert {row["adversary_optimizer"] for row in rows} == {"adam"}
    assert {row["adversary_lr"] for row in rows} == {"0.001"}
    assert all(float(row["adversary_loss"]) > 0 for row in rows)
    assert (broken / "report.html").exists()


@pytest.mark.parametrize(
    ("precision", "step", "epoch"), [("32", 6, 1), ("bf16", 6, 1), ("32", 8, 2), ("32", STEPS, 4)]
)
def test_ctrl_c(
    tmp_path: Path, whole: Callable[..., Path], precision: str, step: int, epoch: int
) -> None:
    """The step, and the epoch that it ends, are saved; then Ctrl-C does what it always does."""
    broken = tmp_path / "broken"
    settings = {**SMALL, "precision": precision, "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        pretrain(IMAGES, out=broken, on_step=signal_at(step), **settings)
    saved = last_checkpoint(broken)
    assert (saved["step"], saved["epoch"], saved["epoch_step"]) == (step, epoch, step - 4 * epoch)
    resumed = pretrain(IMAGES, out=broken, resume=True, quiet=True)
    assert resumed.finished
    assert resumed.steps == STEPS
    assert_same(whole(precision=precision), broken)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_that_swallows_the_signal_gets_it_after_the_run_is_saved(
    tmp_path: Path, sign: signal.Signals
) -> None:
    run, handled = tmp_path / "run", []

    def handle(number: int, frame: object) -> None:
        handled.append((number, last_checkpoint(run)["step"]))

    before = signal.signal(sign, handle)
    try:
        stopped = pretrain(IMAGES, out=run, on_step=signal_at(6, sign), **SMALL)
    finally:
        signal.signal(sign, before)
    assert (stopped.finished, stopped.steps) == (False, 6)
    assert handled == [(sign, 6)]


@pytest.mark.parametrize("step", [3, 4])
def test_a_run_that_stops_within_an_epoch_counts_what_it_trained(tmp_path: Path, step: int) -> None:
    """The epoch's last step as well, after which the epoch is counted: once."""
    counted: list[StepMetrics] = []

    def note(metrics: StepMetrics) -> None:
        counted.append(metrics)
        signal_at(step, signal.SIGTERM)(metrics)

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        stopped = pretrain(IMAGES, out=tmp_path / "run", on_step=note, **SMALL)
    finally:
        signal.signal(signal.SIGTERM, before)
    last = counted[-1]
    assert (stopped.finished, last.images) == (False, 16 * step)
    assert stopped.images_per_second == pytest.approx(last.images / last.seconds)
    assert last.data_wait <= stopped.data_wait < 1  # to find that the epoch is over takes a moment


@pytest.mark.parametrize(
    ("sign", "place", "code"),
    [
        (signal.SIGKILL, "host", -signal.SIGKILL),
        (signal.SIGKILL, "disk", -signal.SIGKILL),
        (signal.SIGTERM, "disk", 143),
        (signal.SIGINT, "host", 130),
    ],
)
def test_a_signal_to_the_command_then_resume(
    tmp_path: Path, whole: Callable[..., Path], sign: signal.Signals, place: str, code: int
) -> None:
    """As a user would see it: kill -9, SIGTERM or Ctrl-C, then --resume."""
    broken, data = tmp_path / "broken", tmp_path / "images.npz"
    np.savez(data, **IMAGES)
    options = {**SMALL, "head_storage": place, "epochs": 12}
    del options["quiet"]
    words = [word for k, v in options.items() for word in (f"--{k.replace('_', '-')}", str(v))]
    process = ForkedCommand("pretrain", data, "--out", broken, *words)
    deadline = time.monotonic() + 120
    while not (broken / "checkpoints" / "last.pt").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(sign)
    out, err = process.communicate()
    assert process.returncode == code
    assert "Traceback" not in err
    if sign != signal.SIGKILL:
        assert out == ""
        assert f"stopped; resume with: widefield pretrain {data} --out {broken} --resume\n" in err
    assert pretrain(data, out=broken, resume=True, quiet=True).finished
    assert_same_weights(whole(epochs=12), broken)


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(IMAGES, out=run, **{**SMALL, "epochs": 1})
    pid = os.getpid()
    with (
        FolderLock(run),
        pytest.raises(ValueError, match=f"run is in use by process {pid}: wait for it to end"),
    ):
        pretrain(IMAGES, out=run, resume=True, quiet=True)


@pytest.mark.parametrize(("place", "room"), [("disk", 1000), ("host", 300_000)])
def test_full_disk_stops_with_one_line_and_the_run_goes_on(
    tmp_path: Path, whole: Callable[..., Path], place: str, room: int
) -> None:
    """From the third epoch on no file grows beyond `room`: a journal, or a checkpoint."""
    broken, free = tmp_path / "broken", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(metrics: StepMetrics) -> None:
        if metrics.step == 9:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, free[1]))

    try:
        with pytest.raises(
            ValueError, match=r"last checkpoint(, if.*,)? is whole; make room and run"
        ) as e:
            pretrain(IMAGES, out=broken, on_step=fill, head_storage=place, **SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, free)
    assert "\n" not in str(e.value)
    pretrain(IMAGES, out=broken, resume=True, quiet=True)
    assert_same(whole(), broken)


def test_resume_on_changed_data_is_refused_by_name(tmp_path: Path) -> None:
    photos, run = tmp_path / "mine", tmp_path / "run"
    paint(photos, images(20)["x"])
    settings = {k: v for k, v in SMALL.items() if k not in ("max_examples", "epochs", "image_size")}
    pretrain(photos, out=run, epochs=1, **settings)
    (photos / "003.png").write_bytes((photos / "005.png").read_bytes())
    with pytest.raises(ValueError, match=r"003\.png has other pixels"):
        pretrain(photos, out=run, resume=True, quiet=True)
    (photos / "003.png").unlink()
    with pytest.raises(ValueError, match=r"003\.png is gone \(20 examples then, 19 now\)"):
        pretrain(photos, out=run, resume=True, quiet=True)


@pytest.fixture(scope="module")
def short_run(whole: Callable[..., Path]) -> Path:
    """A finished run of one epoch, to look at."""
    return whole(epochs=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 32}, "has batch_size 16, not 32: resume without batch_size"),
        ({"head_update": "estimated"}, "has head_update 'exact', not 'estimated'"),
        ({"method": "simclr"}, "has method 'view-contrast', not 'simclr'"),
        ({"views": "viewmaker"}, "has views 'moderate', not 'viewmaker'"),
        ({"temperature": 0.5}, "temperature is not a setting of view-contrast with views moderate"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"method": METHODS["view-contrast"](lr=0.5)}, r"has lr 0\.02, not 0\.5"),
        ({"method": METHODS["simclr"]()}, "has method 'view-contrast', not 'simclr'"),
        ({"views": ViewSettings.named("cutout")}, "has views 'moderate', not 'cutout'"),
        ({"encoder": EncoderSettings(name="resnet18")}, "not 'resnet18'"),
        ({"encoder": EncoderSettings(zero_init_last=False)}, "has zero_init_last True, not False"),
    ],
)
def test_resume_with_other_settings_is_refused_by_what_differs(
    short_run: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        pretrain(IMAGES, out=short_run, resume=True, quiet=True, **settings)


def test_the_number_of_epochs_may_change(tmp_path: Path) -> None:
    """Up at any time, and down to those that have begun."""
    run = tmp_path / "run"
    pretrain(IMAGES, out=run, **{**SMALL, "epochs": 1})
    with pytest.raises(KeyboardInterrupt):
        pretrain(
            IMAGES,
            out=run,
            resume=True,
            epochs=5,
            quiet=True,
            on_step=signal_at(10),
        )
    with pytest.raises(ValueError, match=r"3 epochs of the run in .* have started: give at least"):
        pretrain(IMAGES, out=run, resume=True, epochs=2, quiet=True)
    settings = yaml.safe_load((run / "run.yaml").read_text())
    assert settings["recipe"]["epochs"] == 5
    done = pretrain(IMAGES, out=run, resume=True, epochs=3, quiet=True)
    assert (done.finished, done.steps) == (True, 12)


def test_a_run_goes_on_on_another_kind_of_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a GPU, whose random states are of 16 bytes and fit no processor's generator."""
    run = tmp_path / "run"
    pretrain(IMAGES, out=run, **{**SMALL, "epochs": 2})
    file = run / "checkpoints" / "last-step-8-rank-0-of-1.pt"
    own = torch.load(file, weights_only=True)
    own["random"] |= dict.fromkeys(("views", "cuda"), torch.zeros(16, dtype=torch.uint8))
    checkpoint.save(file, own)
    done = pretrain(IMAGES, out=run, resume=True, epochs=3, device="cpu")
    assert done.steps == 12
    told = "trained on cuda so far, now on cpu: random numbers start anew"
    assert capsys.readouterr().err.count(told) == 1
    kept = yaml.safe_load((run / "run.yaml").read_text())["recipe"]
    assert (kept["epochs"], kept["device"]) == (3, "cpu")
    assert pretrain(IMAGES, out=run, resume=True, epochs=4).steps == 16
    assert told not in capsys.readouterr().err


def test_a_folder_with_another_run_is_refused(short_run: Path, tmp_path: Path) -> None:
    before = weights(short_run)
    with pytest.raises(ValueError, match="already holds a run: go on with resume"):
        pretrain(IMAGES, out=short_run, **SMALL)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mine.txt").write_text("keep me")
    with pytest.raises(ValueError, match="not an empty folder"):
        pretrain(IMAGES, out=tmp_path / "letters", **SMALL)
    assert (tmp_path / "letters" / "mine.txt").read_text() == "keep me"
    assert all(torch.equal(before[key], value) for key, value in weights(short_run).items())


def test_resume_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run"):
        pretrain(IMAGES, out=tmp_path / "nothing", resume=True, quiet=True)


def test_tasks_may_have_any_name(tmp_path: Path) -> None:
    """Names that modules cannot have, and those of the log's own columns."""
    names = ("type", "y.fine", "count", "step", "loss", "lr", "training")
    data = {"x": IMAGES["x"], **dict.fromkeys(names, IMAGES["y"])}
    pretrain(data, out=tmp_path / "run", **small("supervised") | {"epochs": 1})
    (row,) = read_metrics(tmp_path / "run" / "metrics.csv")
    parts = [float(row[f"loss_{name}"]) for name in names]
    assert float(row["loss"]) == pytest.approx(sum(parts), rel=1e-4)
    assert float(row["step"]) == 4


def test_a_run_of_moved_data_is_probed_where_they_are(tmp_path: Path) -> None:
    before, after, run = tmp_path / "before.npz", tmp_path / "after.npz", tmp_path / "run"
    np.savez(before, **images(120))
    pretrain(f"{before}:train", out=run, **{**SMALL, "epochs": 1})
    before.rename(after)
    pretrain(f"{after}:train", out=run, resume=True, epochs=2, quiet=True)
    assert RunFolder(path=run).settings()["data"] == f"{after}:train"
    assert probe(run, floors=False, quiet=True).tasks.keys() == {"y"}


def test_a_run_resumed_on_arrays_keeps_the_place_of_its_data(tmp_path: Path) -> None:
    file, run = tmp_path / "mine.npz", tmp_path / "run"
    np.savez(file, **IMAGES)
    pretrain(file, out=run, **{**SMALL, "epochs": 1})
    pretrain(IMAGES, out=run, resume=True, epochs=2, quiet=True)
    assert RunFolder(path=run).settings()["data"] == str(file)
