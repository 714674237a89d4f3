"""A grammar of odd windows and sounds: each is read right, or refused in one line."""

from pathlib import Path

import numpy as np
import pytest

from waves import ENDS, npz, odd_sound, odd_windows, parquet, sound_file, windows
from widefield.data import Dataset, open_dataset
from widefield.data.readers.recordings import from_int16

CASES, BATCHES = 20, 6


def opened(path: Path, **options: int | float) -> Dataset | str:
    """Return what is opened, or the line by which it is refused."""
    try:
        return open_dataset(path, **options)  # type: ignore[arg-type]
    except ValueError as error:
        line = str(error)
        assert line.isprintable()
        assert len(line) < 1_000
        return line


@pytest.mark.parametrize("seed", range(BATCHES))
def test_sound_files_of_every_kind_are_read_right(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([1, seed])
    for case in range(CASES):
        sound = sound_file(rng)
        folder = tmp_path / str(case)
        folder.mkdir()
        (folder / f"a{rng.choice(ENDS)}").write_bytes(sound.content)
        found = opened(folder, seconds=len(sound.samples) / sound.rate)
        where = f"seed {seed}, case {case}"
        assert isinstance(found, Dataset), f"{where}: {found}"
        assert found.rate == sound.rate, where
        samples = from_int16(found.images[0, 0, :, 0])
        assert samples.shape == sound.samples.shape, where
        assert np.abs(samples - sound.samples).max() <= sound.rounding, where


@pytest.mark.parametrize("seed", range(BATCHES))
def test_odd_sounds_are_refused_or_skipped_and_named(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([2, seed])
    for case in range(CASES):
        folder = tmp_path / str(case)
        folder.mkdir()
        (folder / f"odd{rng.choice(ENDS)}").write_bytes(odd_sound(rng))
        content, rate, *_ = sound_file(rng)
        for number in range(30):
            (folder / f"{number}.wav").write_bytes(content)
        found = opened(folder)
        assert isinstance(found, Dataset), f"seed {seed}, case {case}: {found}"
        assert found.rate == rate
        assert len(found) + len(found.skipped) == 31
        assert all(skipped.path.startswith("odd") for skipped in found.skipped)
        assert all(skipped.reason.isprintable() for skipped in found.skipped)


@pytest.mark.parametrize("seed", range(BATCHES))
def test_windows_are_read_right_or_refused(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([3, seed])
    for case in range(CASES):
        sound = case % 2 == 0
        x, expected = windows(rng) if sound else (odd_windows(rng), None)
        files = {"w.npz": npz(x)} | ({"w.parquet": parquet(x)} if sound else {})
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)
            found = opened(tmp_path / name)
            where = f"seed {seed}, case {case}, {name}: {x.dtype} {x.shape}"
            if not sound:
                assert isinstance(found, str), where
                continue
            assert isinstance(found, Dataset), f"{where}: {found}"
            assert expected is not None
            np.testing.assert_array_equal(found.images[:, 0].swapaxes(1, 2), expected, where)
