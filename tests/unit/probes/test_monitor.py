"""While it trains, a run logs the kNN accuracy of labels that it does not train on."""

from pathlib import Path

import numpy as np
import pytest

from widefield.data import open_dataset
from widefield.train.progress import read_metrics
from widefield.workflows.pretrain import pretrain

N = 1200


def source() -> dict[str, np.ndarray]:
    """Images in the order of their classes, as folders have them: dark ones, then bright ones."""
    y = np.arange(N) // (N // 2)
    noise = np.random.default_rng(0).integers(0, 60, (N, 8, 8, 3))
    return {"x": (noise + 150 * y[:, None, None, None]).astype(np.uint8), "tone": y}


def test_log_and_lines_have_the_knn_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(source(), out=tmp_path / "run", epochs=1)
    (row,) = read_metrics(tmp_path / "run" / "metrics.csv")
    assert float(row["knn_accuracy_tone"]) > 0.9
    assert "kNN accuracy (tone) " in capsys.readouterr().err


def test_without_labels_nothing_is_said(tmp_path: Path) -> None:
    pretrain({"x": source()["x"]}, out=tmp_path / "run", epochs=1, quiet=True)
    (row,) = read_metrics(tmp_path / "run" / "metrics.csv")
    assert not any(name.startswith("knn_accuracy") for name in row)


def test_examples_that_judge_come_from_all_classes() -> None:
    data = open_dataset(source())
    rows = data.spread_rows(512)
    assert len(np.unique(rows)) == 512
    assert abs(data.labels["tone"][rows].mean() - 0.5) < 0.01
    assert data.labels["tone"][:512].mean() == 0  # the first ones are of one class
    assert data.spread_rows(5000).tolist() == list(range(N))
