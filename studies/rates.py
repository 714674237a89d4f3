"""The learning rate of every objective in short runs."""

from studies.equal_time import data
from studies.study import Arm, Scale, Study, cpu_study
from studies.trained import validated
from widefield.methods import METHODS

EPOCHS = {"row-contrast": 7, "diet": 7, "dcl": 3, "lejepa": 3, "byol": 5, "supervised": 8}
"""Objective -> epochs that take half a minute, where these are not 4."""


def _rates(method: str) -> Study:
    return cpu_study(
        id=f"rate-{method}",
        question=f"Which learning rate does {method} take in half a minute?",
        tiny="it is the same for every objective",
        cpu=Scale(images=5000, epochs=EPOCHS.get(method, 4), seeds=(0,), minutes=2),
        arms={
            f"lr {lr:g}": Arm(data=data("+digits"), settings={"method": method, "lr": lr})
            for lr in (2e-3, 6e-3, 2e-2)
        },
        measure=validated,
    )


STUDIES = [*map(_rates, METHODS)]
