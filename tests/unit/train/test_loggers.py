import csv
from pathlib import Path
from typing import Any, ClassVar

import pytest
from lightning.pytorch import loggers

import widefield
from commands import Command
from runs import small
from widefield.train.progress import check_logger


class Kept:
    """Stands for a logger whose package is not installed here."""

    made: ClassVar[list["Kept"]] = []

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.rows: dict[int, dict[str, float]] = {}
        self.ended: list[str] = []
        Kept.made.append(self)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.rows[step] = metrics

    def finalize(self, status: str) -> None:
        self.ended.append(status)


@pytest.mark.parametrize(("name", "kind"), [("wandb", "WandbLogger"), ("mlflow", "MLFlowLogger")])
def test_a_logger_gets_the_numbers_of_metrics_csv(
    name: str, kind: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, kind, Kept)
    monkeypatch.setattr("widefield.workflows.pretrain.check_logger", lambda name: None)
    monkeypatch.setattr(Kept, "made", [])
    settings = {**small("simclr"), "max_examples": 32, "epochs": 2}
    widefield.pretrain("photos", out="run", logger=name, **settings)
    (log,) = Kept.made
    with open(in_tmp / "run" / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(log.rows) == [1, 2]
    for row, logged in zip(rows, log.rows.values(), strict=True):
        assert float(row["loss"]) == pytest.approx(logged["loss"], rel=1e-5)
        assert logged.keys() >= {"loss", "lr", "images_per_second"}
    assert log.ended == ["success"]
    assert "run" in log.given.values()


@pytest.mark.usefixtures("in_tmp")
def test_a_missing_package_is_named_before_the_work(command: Command) -> None:
    said = command.refused("pretrain", "photos", "--out", "run", "--logger", "wandb")
    assert "pip install 'widefield[loggers]' wandb" in said
    assert not Path("run").exists()


def test_an_unknown_logger_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown logger 'wand': did you mean 'wandb'"):
        check_logger("wand")
