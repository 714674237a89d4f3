"""A grammar of odd and malformed files: each is read right, or refused in one line.

A case is drawn from a seed. It fills a folder and says which picture is in it, if that is known. A
picture that is read must be that one; anything but a picture or one line is a failure, and so is
waiting.
"""

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pictures import DAMAGE, NAMES, ROUNDING, SOUND, STRANGE, SUFFIXES, Rng, huge
from widefield.data import Dataset, open_dataset

CASES, BATCHES = 30, 12
"""Cases of a batch; batches of each grammar."""
LIMIT = 20.0
"""Seconds after which a case counts as hanging, on a busy machine."""


def outcome(call: Callable[[], Dataset]) -> Dataset | str:
    """Return what `call` opens, or the line by which it refuses; fail for all else."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert found, f"no answer after {LIMIT:.0f} seconds"
    if isinstance(found[0], Dataset):
        return found[0]
    assert type(found[0]) is ValueError, repr(found[0])
    line = str(found[0])
    assert line
    assert "\n" not in line
    assert len(line) < 1_000
    return line


def check_whole(dataset: Dataset) -> None:
    """What is handed out is sound in itself, and can be shown and written anywhere."""
    assert len(dataset) > 0
    assert dataset.images.dtype in (np.uint8, np.uint16, np.float32)
    told = [*dataset.paths, *dataset.notes, *dataset.labels]
    told += [name for names in dataset.classes.values() for name in names]
    told += [word for skipped in dataset.skipped for word in (skipped.path, skipped.reason)]
    assert all(text.isprintable() for text in told), told
    for task, names in dataset.classes.items():
        assert len(set(names)) == len(names)
        assert dataset.labels[task].max() < len(names)
    for target in dataset.targets.values():
        assert len(target.values) == len(dataset)
        assert np.isfinite(target.values).all()


# One image file -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(BATCHES))
def test_sound_images_of_every_kind_are_read_right(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    for case in range(CASES):
        make = SOUND[rng.integers(len(SOUND))]
        content, expected = make(rng)
        folder = tmp_path / str(case)
        folder.mkdir()
        name = str(rng.choice(NAMES)) + str(rng.choice(SUFFIXES))
        (folder / name).write_bytes(content)
        found = outcome(lambda folder=folder: open_dataset(folder))
        where = f"seed {seed}, case {case}: {make.__name__}"
        assert isinstance(found, Dataset), f"{where}: {found}"
        check_whole(found)
        assert found.images[0].shape == expected.shape, where
        assert np.abs(found.images[0] - expected).max() <= ROUNDING.get(make, 1), where


@pytest.mark.parametrize("seed", range(BATCHES))
def test_damaged_and_strange_images_are_refused_or_read(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    for case in range(CASES):
        kind = rng.integers(4)
        if kind == 0:
            content = STRANGE[rng.integers(len(STRANGE))]
        elif kind == 1 and rng.integers(3) == 0:
            content = huge(rng)
        else:
            content, _ = SOUND[rng.integers(len(SOUND))](rng)
            content = DAMAGE[rng.integers(len(DAMAGE))](rng, content)
        folder = tmp_path / str(case)
        folder.mkdir()
        (folder / f"a{rng.choice(SUFFIXES)}").write_bytes(content)
        found = outcome(lambda folder=folder: open_dataset(folder))
        if isinstance(found, Dataset):
            check_whole(found)
            assert kind != 0, f"seed {seed}, case {case}: {content[:30]!r} was read"


# One .npz file ------------------------------------------------------------------------------


def channels_last(x: NDArray[Any]) -> NDArray[Any]:
    """Return images as they must be read, [n, H, W, C]."""
    x = x[..., None] if x.ndim == 3 else x
    return x if x.shape[-1] in (1, 2, 3, 4) else np.moveaxis(x, 1, -1)


def array(rng: Rng) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return an array, and the pixels [n, H, W, C] that it must be read as, if it is sound."""
    n, height, width = (int(side) for side in rng.integers(5, 12, 3))
    channels = int(rng.integers(1, 5))
    shape = [(n, height, width, channels), (n, channels, height, width), (n, height, width)][
        rng.integers(3)
    ]
    pixels = rng.integers(0, 256, shape)
    last = channels_last(pixels)
    kind = rng.integers(6)
    if kind < 2:
        return pixels.astype(np.uint8), last
    if kind == 2:
        return pixels.astype(rng.choice([np.float32, np.float64, ">f4"])) / 255, last
    if kind == 3:
        return np.asfortranarray(pixels > 127), (last > 127) * 255
    if kind == 4:
        deep = rng.integers(0, 65_536, pixels.shape, dtype=np.uint16)
        return deep, channels_last(deep)
    wrong = [
        pixels,
        np.where(pixels > 9, np.nan, 0),
        pixels.astype(complex),
        pixels.astype(str),
        pixels.astype(object),
        pixels.astype("M8[s]"),
        np.zeros((0, 8, 8, 3), np.uint8),
        np.zeros((3, 0, 8, 3), np.uint8),
        np.zeros((8, 8, 3), np.uint8),
        np.zeros(7, np.uint8),
        np.uint8(3),
        np.zeros((2, 2, 2, 2, 2), np.uint8),
        np.zeros((3, 8, 8, 3), [("r", "u1")]),
    ]
    return wrong[rng.integers(len(wrong))], None


def labels(rng: Rng, n: int) -> tuple[dict[str, NDArray[Any]], bool]:
    """Return one task and perhaps its class names, and whether they are sound.

    Floats are numbers, and 0 and 1 [n, 2] are several labels of each example.
    """
    sound = [
        {"t": rng.integers(0, 3, n)},
        {"t": rng.integers(0, 3, n).astype(np.uint8), "t_classes": np.array(["a", "b", "ü"])},
        {"t": rng.choice(["cat", "dog", "\x1b[2J"], n)},
        {"t": rng.choice([b"cat", "dög".encode()], n)},
        {"t": rng.integers(0, 2, n).astype(bool)},
        {"t": rng.random(n)},
        {"t": rng.integers(0, 2, (n, 2))},
    ]
    wrong = [
        {"t": rng.integers(0, 3, n + 1)},
        {"t": rng.integers(2, 5, (n, 2))},
        {"t": np.full(n, np.nan)},
        {"t": np.full(n, -1)},
        {"t": np.full(n, 2**62)},
        {"t": np.where(np.arange(n) % 2, 65_535, 0)},
        {"t": np.full(n, None)},
        {"t": np.full(n, b"\xff")},
        {"t": np.zeros(n, int), "t_classes": np.array(["a", "a"])},
        {"t": np.ones(n, int), "t_classes": np.array(["a"])},
        {"t": np.zeros(n, int), "t_classes": np.array(3)},
        {"t": np.zeros(n, int), "t_classes": np.array([b"\xff\xfe"])},
        {"t": np.full(n, "z"), "t_classes": np.array(["a"])},
        {"\x1b]0;t\x07": np.zeros(n, int)},
        {"audio": np.zeros(n)},
        {"t": np.zeros(n, "M8[s]")},
        {"t": np.array(1)},
    ]
    if rng.integers(2):
        return sound[rng.integers(len(sound))], True
    return wrong[rng.integers(len(wrong))], False


def is_read_right(images: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Return whether values are those that were written; of 16 bits or floats, their order."""
    if images.dtype == np.uint8:
        return bool((images == expected).all())
    columns = ((images[..., c].ravel(), expected[..., c].ravel()) for c in range(images.shape[-1]))
    return all(
        (np.diff(read[np.argsort(written)].astype(float)) >= 0).all() for read, written in columns
    )


@pytest.mark.parametrize("seed", range(BATCHES))
def test_arrays_are_read_right_or_refused(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    for case in range(CASES):
        x, expected = array(rng)
        task, is_sound = labels(rng, len(x) if x.ndim else 1)
        path, where = tmp_path / f"{case}.npz", f"seed {seed}, case {case}: {x.dtype} {x.shape}"
        (np.savez if rng.integers(2) else np.savez_compressed)(path, x=x, **task)
        for data in (path, {"x": x, **task}):
            found = outcome(lambda data=data: open_dataset(data))
            if isinstance(found, Dataset):
                check_whole(found)
            if expected is None or not is_sound:
                assert isinstance(found, str), where
            elif isinstance(found, str):
                assert "may be one color image" in found, f"{where}: {found}"
            else:
                assert found.images.shape == expected.shape, where
                assert is_read_right(found.images, expected), where


@pytest.mark.parametrize("seed", range(BATCHES))
def test_damaged_archives_are_refused_or_read(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([4, seed])
    buffer = io.BytesIO()
    np.savez(buffer, x=rng.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8), t=np.arange(6) % 2)
    for case in range(CASES):
        damage = DAMAGE[rng.integers(len(DAMAGE))]
        path = tmp_path / f"{case}.npz"
        path.write_bytes(damage(rng, buffer.getvalue()))
        found = outcome(lambda path=path: open_dataset(path))
        if isinstance(found, Dataset):
            check_whole(found)


# A folder -----------------------------------------------------------------------------------


def odd_entry(rng: Rng, folder: Path, number: int) -> None:
    """Put one thing into `folder` that is no picture, or another way to a picture."""
    path = folder / (
        str(rng.choice(NAMES)) + str(number) + str(rng.choice((*SUFFIXES, "", ".nef")))
    )
    real = [entry for entry in folder.rglob("*.png") if entry.is_file()]
    kind = rng.integers(8)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(path.name)  # itself
    elif kind == 2:
        path.symlink_to(folder)  # a way up
    elif kind == 3:
        path.symlink_to(["/dev/zero", "/dev/stdin", "/dev/tty"][rng.integers(3)])
    elif kind == 4:
        path.mkdir()
    elif kind == 5:
        path.symlink_to("nowhere")
    elif kind == 6:
        path.write_bytes(STRANGE[rng.integers(len(STRANGE))])
    else:
        path.symlink_to(real[rng.integers(len(real))])


@pytest.mark.parametrize("seed", range(BATCHES))
def test_folders_with_odd_entries_keep_their_pictures(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    for case in range(3):
        folder = tmp_path / str(case)
        for i in range(120):
            place = folder / ("cat", "dog\x1b[2J")[i % 2]
            place.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (i, 2, 3)).save(place / f"{i:03d}.png")
        for number in range(rng.integers(1, 6)):
            odd_entry(rng, (folder, folder / "cat")[rng.integers(2)], number)
        max_examples = [None, 120, 7][rng.integers(3)]
        found = outcome(
            lambda folder=folder, max_examples=max_examples: open_dataset(
                folder, max_examples=max_examples
            )
        )
        assert isinstance(found, Dataset), f"seed {seed}, case {case}: {found}"
        check_whole(found)
        assert len(found) >= min(max_examples or 120, 115)
        by_name = dict(zip(found.paths, found.images[:, 0, 0, 0].tolist(), strict=True))
        plain_names = [name for name in by_name if name[-7:-4].isdecimal() and name[-8] == "/"]
        assert all(by_name[name] == int(name[-7:-4]) for name in plain_names)
        assert max_examples is not None or len(plain_names) == 120


# A name -------------------------------------------------------------------------------------


PIECES = ("photos", "cifar10", ":", ":train", "+", "+digits", ":alpha", "=", "=1", "./", "\0",
          "\x1b[2J", "\udcff", "~nobody", "nan", "-1", "1e999", "x", " ", "é", "a" * 300,
          "/dev/null", "/dev/zero", "/proc/self/mem", "/proc/self/environ")  # fmt: skip


@pytest.mark.parametrize("seed", range(BATCHES))
@pytest.mark.usefixtures("in_tmp")
def test_names_that_are_no_data(seed: int) -> None:
    rng = np.random.default_rng([6, seed])
    for _ in range(CASES):
        text = "".join(rng.choice(PIECES, rng.integers(1, 6)))
        found = outcome(lambda text=text: open_dataset(text, max_examples=2))
        if isinstance(found, Dataset):
            check_whole(found)
            assert text.startswith("photos")
