"""New examples join a run that is resumed: they get rows, and the others keep theirs."""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from runs import Killed, assert_same, die_at, images, last_checkpoint, paint, signal_at, small
from widefield.data import open_dataset
from widefield.inference.open_encoder import open_encoder
from widefield.inference.splits import training_data
from widefield.train import checkpoint
from widefield.train.manifest import Growth, Manifest
from widefield.train.run_dir import RunFolder
from widefield.workflows.pretrain import pretrain

FEW, ALL = 64, 96
"""Examples at the beginning and in the end: four steps an epoch, then six."""


def settings(method: str = "row-contrast", **more: Any) -> dict[str, Any]:
    """Settings of a small run on all that is in the data."""
    return {**small(method), "max_examples": None, **more}


def rows(run: Path) -> dict[str, torch.Tensor]:
    """Rows of the head, their moments and steps, as of the last checkpoint."""
    step = last_checkpoint(run)["step"]
    file = run / "checkpoints" / f"last-step-{step}-rank-0-of-1.pt"
    (extra,) = torch.load(file, weights_only=True)["extra"].values()
    found: dict[str, torch.Tensor] = extra["rows"]
    return found


Begun = Callable[..., Path]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """Copies a run on a few of the examples, which is trained once for all."""

    @cache
    def trained(**more: Any) -> Path:
        run = tmp_path_factory.mktemp("begun") / "run"
        pretrain(images(FEW), out=run, **settings(**more))
        return run

    def copied(run: Path, method: str = "row-contrast", epochs: int = 2, **more: Any) -> Path:
        return Path(shutil.copytree(trained(method=method, epochs=epochs, **more), run))

    return copied


@pytest.fixture(scope="module")
def grown(begun: Begun, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Trains such a run on all of them to its end, with the rows of the head in a place."""

    @cache
    def train(place: str) -> Path:
        run = begun(tmp_path_factory.mktemp("grown") / "run", head_storage=place)
        pretrain(images(ALL), out=run, resume=True, epochs=4, quiet=True)
        return run

    return train


def test_new_examples_follow_and_the_others_keep_their_rows(begun: Begun, tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    before, mean = rows(run), json.loads((run / "encoder.json").read_text())["mean"]
    with pytest.raises(Killed):
        pretrain(images(ALL), out=run, resume=True, epochs=4, quiet=True, on_step=die_at(9))
    joined = rows(run)
    for name, table in before.items():
        assert torch.equal(joined[name][:FEW], table), name
    assert len(joined["last"]) == ALL
    assert not joined["last"][FEW:].any()  # never visited
    done = pretrain(images(ALL), out=run, resume=True, quiet=True)
    assert done.steps == 2 * 4 + 2 * 6
    assert (rows(run)["last"] > 8).all()  # in the last epochs all are visited
    assert json.loads((run / "encoder.json").read_text())["mean"] == mean
    kept = yaml.safe_load((run / "run.yaml").read_text())
    assert (kept["examples"], kept["recipe"]["epochs"]) == (ALL, 4)


def test_examples_can_join_twice(begun: Begun, tmp_path: Path) -> None:
    """The manifest says how long the warm-up was: half an epoch of 4 steps, not of longer ones."""
    run = begun(tmp_path / "run", epochs=1, warmup_epochs=0.5)
    manifest = RunFolder(path=run).manifest
    assert manifest.growth().warmup_steps is None
    for count, epochs, steps in ((80, 2, 4 + 5), (ALL, 3, 4 + 5 + 6)):
        done = pretrain(images(count), out=run, resume=True, epochs=epochs, quiet=True)
        growth = manifest.growth()
        assert (growth.first, growth.warmup_steps) == (FEW, 2)
        assert done.steps == steps
    assert (growth.epoch, growth.step) == (2, 9)


def clips(*lengths: int) -> dict[str, np.ndarray]:
    """Return sounds of these lengths, the same at each place whatever follows."""
    draws = [np.random.default_rng(row).integers(-9000, 9000, n) for row, n in enumerate(lengths)]
    audio, ends = np.concatenate(draws).astype(np.int16), np.cumsum([0, *lengths])
    return {"audio": audio, "offsets": ends, "sample_rate": np.array(1000)}


def test_a_longer_sound_may_join_short_ones(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path / "manifest.parquet")
    manifest.write(open_dataset(clips(900, 1000)), Growth(first=2))
    longer = open_dataset(clips(900, 1000, 2500))
    assert manifest.check_data(longer, allow_new=True) == 1
    other = open_dataset(clips(900, 999, 2500))
    with pytest.raises(ValueError, match="row 1 has other pixels"):
        manifest.check_data(other, allow_new=True)


@pytest.mark.parametrize("place", ["host", "disk"])
def test_a_run_that_grew_is_resumed_bit_for_bit(
    begun: Begun, grown: Callable[[str], Path], tmp_path: Path, place: str
) -> None:
    two = begun(tmp_path / "two", head_storage=place)
    for step in (9, 16):
        with pytest.raises(Killed):
            pretrain(images(ALL), out=two, resume=True, epochs=4, quiet=True, on_step=die_at(step))
    pretrain(images(ALL), out=two, resume=True, quiet=True)
    assert_same(grown(place), two)


def test_where_examples_joined_within_an_epoch_no_encoder_is_made_up_for_its_end(
    tmp_path: Path,
) -> None:
    """The checkpoint stands at an epoch's beginning, with weights that are of no epoch's end."""
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        pretrain(images(FEW), out=run, on_step=signal_at(6), **settings())
    shutil.rmtree(RunFolder(path=run).encoder_at(1))
    for step in (7, 8):
        with pytest.raises(Killed):
            pretrain(images(ALL), out=run, resume=True, quiet=True, on_step=die_at(step))
    assert last_checkpoint(run)["step"] == 6
    assert not RunFolder(path=run).encoder_at(1).exists()


def test_rows_on_disk_grow_as_rows_in_memory(grown: Callable[[str], Path]) -> None:
    assert_same(grown("host"), grown("disk"))


def test_what_joins_matters(begun: Begun, grown: Callable[[str], Path], tmp_path: Path) -> None:
    """The control: without the new examples, the same epochs end with other weights."""
    alone = begun(tmp_path / "alone", head_storage="host")
    pretrain(images(FEW), out=alone, resume=True, epochs=4, quiet=True)
    with pytest.raises(AssertionError):
        assert_same(grown("host"), alone)


def test_an_epoch_under_way_begins_again_with_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        pretrain(images(FEW), out=run, on_step=signal_at(7), **settings())
    stood = last_checkpoint(run)
    assert (stood["epoch"], stood["epoch_step"]) == (1, 3)
    done = pretrain(images(ALL), out=run, resume=True)
    assert "32 examples are new, 96 in all: added from epoch 2, which starts again" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert done.steps == 7 + 3 * 6


def test_files_may_stand_among_those_of_the_run(tmp_path: Path) -> None:
    folder, run = tmp_path / "images", tmp_path / "run"
    x = images(ALL)["x"]
    paint(folder, x[:FEW], step=2)
    pretrain(folder, out=run, **settings(epochs=1))
    before = Manifest(run / "manifest.parquet").paths()
    paint(folder, x[FEW:], first=1, step=2)
    pretrain(folder, out=run, resume=True, epochs=2, quiet=True)
    after = Manifest(run / "manifest.parquet").paths()
    assert after[:FEW] == before
    assert after[FEW:] == [f"{2 * i + 1:03}.png" for i in range(ALL - FEW)]


def test_a_run_without_a_checkpoint_begins_again_with_all(tmp_path: Path) -> None:
    folder, run = tmp_path / "images", tmp_path / "run"
    x = images(FEW)["x"]
    paint(folder, x, step=2)
    with pytest.raises(Killed):
        pretrain(folder, out=run, **settings(epochs=1), on_step=die_at(2))
    paint(folder, x[:1], first=1)
    done = pretrain(folder, out=run, resume=True, quiet=True)
    assert (done.steps, len(Manifest(run / "manifest.parquet").paths())) == (4, FEW + 1)


@pytest.mark.parametrize(
    ("method", "count", "epochs", "said"),
    [
        ("row-contrast", ALL, None, "all 2 epochs of the run in .* are done: give more epochs"),
        ("diet", ALL, 3, "diet has weights for each example or class"),
        ("row-contrast", FEW - 8, 3, "row 56 is gone .64 examples then, 56 now."),
    ],
)
def test_what_cannot_join_is_refused_in_one_line(
    begun: Begun, tmp_path: Path, method: str, count: int, epochs: int | None, said: str
) -> None:
    run = begun(tmp_path / "run", method)
    checkpoint = (run / "checkpoints" / "last.pt").read_bytes()
    given = {} if epochs is None else {"epochs": epochs}
    with pytest.raises(ValueError, match=said) as caught:
        pretrain(images(count), out=run, resume=True, quiet=True, **given)
    assert "\n" not in str(caught.value)
    assert (run / "checkpoints" / "last.pt").read_bytes() == checkpoint
    pretrain(images(FEW), out=run, resume=True, epochs=3, quiet=True)


def test_a_changed_example_is_refused_beside_new_ones(begun: Begun, tmp_path: Path) -> None:
    run, data = begun(tmp_path / "run"), images(ALL)
    data["x"] = data["x"].copy()
    data["x"][3] += 1
    with pytest.raises(ValueError, match="row 3 has other pixels"):
        pretrain(data, out=run, resume=True, epochs=4, quiet=True)


def test_keys_of_few_examples_stay_in_a_longer_queue(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(images(FEW), out=run, **settings("moco", epochs=1))
    before = last_checkpoint(run)["model"]
    with pytest.raises(Killed):
        pretrain(images(ALL), out=run, resume=True, epochs=3, quiet=True, on_step=die_at(5))
    joined = last_checkpoint(run)["model"]
    for name, empty in (("method.queue", 0), ("method.queue_index", -1)):
        assert torch.equal(joined[name][:FEW], before[name])
        assert (joined[name][FEW:] == empty).all()
        assert len(joined[name]) == ALL
    assert pretrain(images(ALL), out=run, resume=True, quiet=True).steps == 4 + 2 * 6


def test_new_images_of_another_size_are_brought_to_that_of_the_run(tmp_path: Path) -> None:
    folder, run, x = tmp_path / "images", tmp_path / "run", images(ALL)["x"]
    paint(folder, x[:FEW])
    pretrain(folder, out=run, **settings(epochs=1, image_size=None))
    paint(folder, x[FEW:].repeat(4, axis=1).repeat(4, axis=2), first=FEW)
    with pytest.raises(ValueError, match=r"064.png is new .64 examples then, 96 now.; add new"):
        training_data(RunFolder(path=run), quiet=True)
    done = pretrain(folder, out=run, resume=True, epochs=2, quiet=True)
    assert (done.steps, done.encoder.config.image_size) == (4 + 6, (16, 16))
    assert training_data(RunFolder(path=run), quiet=True).images.shape == (ALL, 16, 16, 3)


def test_black_and_white_stay_so(tmp_path: Path) -> None:
    folder, run, x = tmp_path / "images", tmp_path / "run", images(ALL)["x"][..., 0]
    values = 30_000 + 15 * x.astype(np.uint16)
    paint(folder, values[:FEW])
    pretrain(folder, out=run, **settings(epochs=1))
    black, white = yaml.safe_load((run / "run.yaml").read_text())["form"]["black_white"]
    assert 30_000 <= black < white <= 33_825
    paint(folder, 31_000 + x[FEW:].astype(np.uint16), first=FEW)  # of less contrast
    done = pretrain(folder, out=run, resume=True, epochs=2, quiet=True)
    assert done.encoder.config.black_white == (black, white)
    joined = training_data(RunFolder(path=run), quiet=True)
    assert joined.black_white == (black, white)
    assert np.ptp(joined.images[FEW:]) <= 18
    later = open_encoder(run).open(folder, quiet=True)
    assert (later.images == joined.images).all()


def test_a_form_that_no_run_writes_is_refused(begun: Begun, tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    file, text = run / "run.yaml", (run / "run.yaml").read_text()
    for edited in ("form: 3", "form: {image_size: [16]}", "form: {color: 3}"):
        file.write_text(re.sub(r"(?ms)^form:.*?(?=^\w)", f"{edited}\n", text))
        with pytest.raises(ValueError, match=r"run\.yaml: form .*restore (it|the file)") as caught:
            pretrain(images(FEW), out=run, resume=True, epochs=3, quiet=True)
        assert "\n" not in str(caught.value)
    file.write_text(re.sub(r"(?ms)^form:.*?(?=^\w)", "", text))
    with pytest.raises(ValueError, match=r"run\.yaml: form is missing: restore the file"):
        pretrain(images(FEW), out=run, resume=True, epochs=3, quiet=True)


def test_labels_that_were_not_there_are_named(tmp_path: Path) -> None:
    run, data = tmp_path / "run", images(FEW)
    pretrain({"x": data["x"]}, out=run, **settings(epochs=1))
    with pytest.raises(ValueError, match="there are labels of a task 'y' now; restore it"):
        pretrain(data, out=run, resume=True, epochs=2, quiet=True)
    with pytest.raises(ValueError, match="labels of a task 'y' now; restore it"):
        pretrain(images(ALL), out=run, resume=True, epochs=2, quiet=True)


@pytest.mark.parametrize("place", ["host", "disk"])
def test_examples_that_could_not_join_may_be_taken_away(
    begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """The disk is full as the checkpoint with them is saved, after their rows were."""
    run, alone = (begun(tmp_path / name, head_storage=place) for name in ("run", "alone"))
    full, save = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), checkpoint.write_atomically

    def fill(path: Path, write: Any) -> None:
        if path.name == "last.pt":
            raise full
        save(path, write)

    monkeypatch.setattr(checkpoint, "write_atomically", fill)
    with pytest.raises(ValueError, match="the last checkpoint is whole"):
        pretrain(images(ALL), out=run, resume=True, epochs=3, quiet=True)
    monkeypatch.undo()
    for folder in (run, alone):
        pretrain(images(FEW), out=folder, resume=True, epochs=3, quiet=True)
    assert_same(run, alone)
