"""While it trains, a run logs the kNN accuracy of labels that it does not train on."""

from pathlib import Path

import numpy as np
import pytest

from widefield.data import open_dataset
from widefield.train.progress import read_metrics
from widefield.workflows.pretrain import pretrain

N = 1200
SHORT = {"epochs": 1, "max_examples": 60, "encoder": "resnet-tiny", "image_size": 16}


def source() -> dict[str, np.ndarray]:
    """Images in the order of their classes, as folders have them: dark ones, then bright ones."""
    y = np.arange(N) // (N // 2)
    noise = np.random.default_rng(0).integers(0, 60, (N, 8, 8, 3))
    return {"x": (noise + 150 * y[:, None, None, None]).astype(np.uint8), "tone": y}


def test_log_and_lines_have_the_knn_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pretrain(source(), out=tmp_path / "run", **SHORT)
    (row,) = read_metrics(tmp_path / "run" / "metrics.csv")
    assert float(row["knn_accuracy_tone"]) > 0.9
    assert "kNN accuracy (tone) " in capsys.readouterr().err


def test_without_labels_nothing_is_said(tmp_path: Path) -> None:
    pretrain({"x": source()["x"]}, out=tmp_path / "run", **SHORT)
    (row,) = read_metrics(tmp_path / "run" / "metrics.csv")
    assert not any(name.startswith("knn_accuracy") for name in row)


def test_examples_that_judge_come_from_all_classes() -> None:
    data = open_dataset(source())
    rows = data.spread_rows(512)
    assert len(np.unique(rows)) == 512
    assert abs(data.labels["tone"][rows].mean() - 0.5) < 0.01
    assert data.labels["tone"][:512].mean() == 0  # the first ones are of one class
    assert data.spread_rows(5000).tolist() == list(range(N))


def test_equal_images_are_no_matter_of_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    equal = np.repeat(source()["x"][:1], 60, 0)
    for method in ("view-contrast", "simclr"):
        pretrain(equal, out=tmp_path / method, method=method, **SHORT)
        said = capsys.readouterr().err
        assert "try: all images are equal, and no setting tells them apart: give others" in said
        assert "lower the learning rate" not in said


@pytest.mark.parametrize("method", ["simclr", "diet"])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_rate_that_is_too_high_is_told_after_one_epoch(
    tmp_path: Path, method: str, steps: int
) -> None:
    data = source()["x"][:48]
    with pytest.raises(ValueError, match="lower lr or use precision=32, and start again") as error:
        pretrain(
            data,
            out=tmp_path / "run",
            epochs=1,
            lr=1e9,
            weight_decay=0.0,
            batch_size=48 // steps,
            method=method,
            quiet=True,
        )
    assert "\n" not in str(error.value)
