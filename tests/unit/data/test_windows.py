"""Windows [n, channels, time] as a source: what is kept, what is refused, and in which words."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.data import Loader, open_dataset


def windows(n: int = 10, channels: int = 3, steps: int = 32) -> np.ndarray:
    return np.random.default_rng(0).normal(5.0, 20.0, (n, channels, steps))


def test_numbers_keep_their_units() -> None:
    x = windows()
    dataset = open_dataset({"windows": x, "activity": np.arange(10) % 2})
    assert (dataset.kind, dataset.images.shape) == ("windows", (10, 1, 32, 3))
    np.testing.assert_array_equal(dataset.images[:, 0], x.swapaxes(1, 2).astype(np.float32))
    assert dataset.labels["activity"].tolist() == [0, 1] * 5


def test_npz_and_parquet_say_the_same(tmp_path: Path) -> None:
    x, names = windows().astype(np.float32), ["walk", "rest"] * 5
    np.savez(tmp_path / "a.npz", windows=x, activity=np.array(names))
    table = pa.table({"window": [window.tolist() for window in x], "activity": names})
    pq.write_table(table, tmp_path / "a.parquet")
    one, two = (open_dataset(tmp_path / f"a{end}") for end in (".npz", ".parquet"))
    np.testing.assert_array_equal(one.images, two.images)
    assert one.classes == two.classes == {"activity": ("rest", "walk")}
    np.testing.assert_array_equal(one.labels["activity"], two.labels["activity"])


def test_one_channel_may_go_without_its_axis() -> None:
    x = windows(channels=1)
    one, two = open_dataset({"windows": x}), open_dataset({"windows": x[:, 0]})
    np.testing.assert_array_equal(one.images, two.images)


@given(st.floats(-1e6, 1e6), st.floats(1e-2, 1e4))
@settings(max_examples=20, deadline=None)
def test_channel_statistics_are_those_of_the_numbers(center: float, spread: float) -> None:
    x = (center + spread * np.random.default_rng(1).normal(size=(700, 2, 16))).astype(np.float32)
    mean, std = open_dataset({"windows": x}).channel_mean_std()
    exact = x.astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean((0, 2)), rtol=1e-9)
    expected = exact.std((0, 2))
    constant = expected <= 1e-6 * np.abs(exact.mean((0, 2)))
    np.testing.assert_allclose(std, np.where(constant, 1.0, expected), rtol=1e-6)


def test_a_constant_channel_can_be_divided_by_its_deviation() -> None:
    for value in (9.81, 1e-13, 0.0):
        _, std = open_dataset({"windows": np.full((4, 1, 16), value)}).channel_mean_std()
        assert std == (1.0,)


def test_a_channel_of_a_large_unit_is_not_constant() -> None:
    x = 1e-13 * np.random.default_rng(0).normal(size=(50, 1, 16))  # a magnetometer's, in tesla
    _, std = open_dataset({"windows": x}).channel_mean_std()
    assert std == pytest.approx((x.std(),), rel=1e-6)


def test_counters_that_float32_would_round_are_refused(tmp_path: Path) -> None:
    ticks = 1_700_000_000_000 + 10 * np.arange(320).reshape(10, 1, 32)
    table = pa.table({"window": [window.tolist() for window in ticks]})
    pq.write_table(table, tmp_path / "ticks.parquet")
    for data in ({"windows": ticks}, {"windows": -ticks}, tmp_path / "ticks.parquet"):
        with pytest.raises(ValueError, match=r"whole numbers up to .*, which float32 rounds above"):
            open_dataset(data)
    for exact in (ticks - ticks.min(), 2**40 * (ticks % 1000), ticks.astype(np.float32)):
        found = open_dataset({"windows": exact}).images
        np.testing.assert_array_equal(found[:, 0, :, 0], exact[:, 0])


def test_batches_are_the_windows() -> None:
    dataset = open_dataset({"windows": windows()})
    batch = next(iter(Loader(dataset, batch_size=5, device=torch.device("cpu")).epoch(0)))
    assert batch.x.shape == (5, 3, 1, 32)
    expected = torch.from_numpy(windows()[batch.index.numpy()][:, :, None]).float()
    assert torch.equal(batch.x, expected)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.zeros((5, 3, 8)), "8 steps of time; expected [n, channels, time] with at least 16"),
        (np.zeros((5, 64, 20)), "swap the last two axes"),
        (np.zeros((5, 2, 3, 16)), "expected numbers [n, channels, time]"),
        (np.zeros((0, 2, 16)), "expected numbers [n, channels, time]"),
        (np.full((5, 2, 16), np.nan), "NaN or infinity in 5 of 5 windows (first: row 0)"),
        (np.full((5, 2, 16), 1e300), "NaN or infinity in 5 of 5 windows"),
        (np.zeros((5, 2, 16), dtype=complex), "expected numbers"),
    ],
)
def test_bad_windows_are_refused_in_one_line(x: np.ndarray, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        open_dataset({"windows": x})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_windows_under_the_key_of_images_are_told_where_to_go() -> None:
    with pytest.raises(ValueError, match="go under key 'windows'"):
        open_dataset({"x": windows()})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[[0.0] * 32], [[0.0] * 16]], "unequal length: [1, 32] in row 0, [1, 16] in row 1"),
        ([[[0.0] * 32, [0.0] * 31]], "row 0 of"),
        ([], "no rows"),
    ],
)
def test_bad_parquet_is_refused_in_one_line(tmp_path: Path, rows: list, words: str) -> None:
    kind = pa.list_(pa.list_(pa.float64()))
    pq.write_table(pa.table({"window": pa.array(rows, kind)}), tmp_path / "w.parquet")
    with pytest.raises(ValueError, match=r".") as caught:
        open_dataset(tmp_path / "w.parquet")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_column_split_of_windows(tmp_path: Path) -> None:
    table = pa.table({"window": windows().tolist(), "split": ["test", "train"] * 5})
    pq.write_table(table, tmp_path / "w.parquet")
    test = open_dataset(f"{tmp_path / 'w.parquet'}:test")
    assert test.paths == [f"row {i}" for i in range(0, 10, 2)]
    assert test.labels == {}
    assert "test split: 5 examples, by the column split" in test.notes


def test_a_parquet_file_of_something_else(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "w.parquet")
    with pytest.raises(ValueError, match="nor 'path' or 'window'; found 'a'"):
        open_dataset(tmp_path / "w.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match="not a readable Parquet file"):
        open_dataset(tmp_path / "broken.parquet")


def test_nothing_is_planted_on_windows_and_their_length_stays(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", windows=windows())
    with pytest.raises(ValueError, match="holds windows"):
        open_dataset(f"{tmp_path / 'w.npz'}+digits")
    with pytest.raises(ValueError, match="windows of 32 steps, and 64 steps were requested"):
        open_dataset(tmp_path / "w.npz", image_size=(1, 64))
    with pytest.raises(ValueError, match="leave image_size out"):
        open_dataset(tmp_path / "w.npz", image_size=32)


def test_the_row_numbers_of_pandas_are_no_labels(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3, 32)).tolist()
    columns = {"window": rows, "kind": [i % 2 for i in range(20)]}
    numbers = {"__index_level_0__": [100_000 + 2 * i for i in range(20)]}
    pq.write_table(pa.table(columns | numbers), tmp_path / "w.parquet")
    assert list(open_dataset(tmp_path / "w.parquet").labels) == ["kind"]
