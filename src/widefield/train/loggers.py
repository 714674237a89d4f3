"""Lightning's loggers by name, in addition to the files of every run."""

import importlib.util
import os
from pathlib import Path
from typing import Any, Literal, get_args

from widefield.core.names import check_name

LoggerName = Literal["wandb", "mlflow"]
"""Weights & Biases, MLflow; `metrics.csv` and TensorBoard's files are written anyway."""

_CLASSES = {"wandb": "WandbLogger", "mlflow": "MLFlowLogger"}


def check_logger(name: str) -> None:
    """Check that a logger exists and that its package is installed.

    Raises:
        ValueError: it is unknown or not installed; the message says what to install.
    """
    check_name("logger", name, get_args(LoggerName))
    for package in (name, "lightning"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"logger {name} needs the package {package}: "
                f"pip install 'widefield[loggers]' {name}"
            )


def open_logger(name: LoggerName, run: Path) -> Any:
    """Return Lightning's logger of that name, for the run in the folder `run`.

    Account, server and project are taken from the logger's own environment variables.
    """
    from lightning.pytorch import loggers

    options = {
        "wandb": {
            "name": run.name,
            "project": os.environ.get("WANDB_PROJECT", "widefield"),
            "save_dir": str(run),
        },
        "mlflow": {
            "run_name": run.name,
            "experiment_name": os.environ.get("MLFLOW_EXPERIMENT_NAME", "widefield"),
        },
    }
    return getattr(loggers, _CLASSES[name])(**options[name])
