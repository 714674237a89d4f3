"""Advice speaks of settings that the encoder's own recipe has, and of no others."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from made_audit import audited, task
from widefield.audits.audit import _wide_probe
from widefield.audits.result import advice
from widefield.audits.verdict import TaskAudit, packed
from widefield.config.recipes import make_recipe
from widefield.config.resolve import RunContext, resolve
from widefield.core.errors import command_line
from widefield.core.form import COLOR_32
from widefield.core.hardware import Memory
from widefield.data.spec import MEMORY
from widefield.methods import METHODS
from widefield.train.run_dir import FORMAT, RunFolder

OPTION = re.compile(r"`--([a-z-]+)|(?<=er )`([a-z_]+)`")
OF_THE_AUDIT = {"compare", "all-checkpoints", "plant", "config"}
"""Options of `widefield audit` itself."""


def named(text: str) -> set[str]:
    """Return the options and settings that a text names."""
    return {option or setting for option, setting in OPTION.findall(text)}


def topics(steps: tuple[str, ...]) -> list[str]:
    return [step.partition(":")[0] for step in steps]


def test_a_foreign_encoder_is_told_in_words() -> None:
    with command_line():
        steps = advice(audited(letters=0.9, shape=0.5, digit=0.2))
    assert topics(steps) == ["Views", "Method", "More training"]
    assert named(" ".join(steps)) <= {"compare"}
    assert "shape and digit" in steps[0]
    assert "letters" not in " ".join(steps)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "a", "views": "expert", "epochs": 3},
        {"method": "b", "views": "gentle", "epochs": 3, "temperature": 0.1},
        {"method": "c", "views": "none", "epochs": 3, "logit_scale": 10.0},
        {"method": "d"},
    ],
    ids=lambda settings: settings["method"],
)
def test_a_run_is_advised_on_settings_of_its_own_recipe_alone(settings: dict[str, Any]) -> None:
    with command_line():
        text = " ".join(advice(audited(settings, shape=0.5)))
    advised = {name.replace("-", "_") for name in named(text) - OF_THE_AUDIT}
    assert advised == settings.keys()


def test_values_that_the_run_has_already_are_not_advised() -> None:
    (views, method, finer, _) = advice(
        audited({"method": "mine", "views": "gentle", "temperature": 0.07, "epochs": 3}, shape=0.5)
    )
    assert "`views='expert'` in place of `gentle`" in views
    assert "than `mine`" in method
    assert finer.startswith("Loss: a smaller `temperature` than 0.07")


def predicted(hits: int) -> TaskAudit:
    """The verdict on digits of which so many of 100 test examples are predicted."""
    return replace(task("digit", hits / 100), right=packed(np.arange(100) < hits))


def test_more_training_is_advised_where_it_was_still_rising() -> None:
    rows = {
        1: {"shape": task("shape", 0.5), "digit": predicted(10)},
        2: {"shape": task("shape", 0.5), "digit": predicted(20)},
    }
    audit = replace(audited({"epochs": 2}, shape=0.5, digit=0.2), checkpoints=rows)
    expected = "More training: digit rose over the second half of it; raise `epochs`."
    assert advice(audit)[-1] == expected
    rows[4] = rows[2]  # it rose in the first half alone
    rows[8] = rows[2] | {"digit": predicted(23)}  # by chance
    for checkpoints in ({k: rows[k] for k in (1, 2, 4)}, {k: rows[k] for k in (1, 4, 8)}):
        said = advice(replace(audit, checkpoints=checkpoints))[-1]
        assert "nothing rose significantly over the second half" in said


def test_that_nothing_rose_is_said_only_of_what_the_checkpoints_show() -> None:
    audit = audited({"epochs": 2}, shape=0.5, digit=0.2)
    for rows in ({}, {"shape": task("shape", 0.5)}):
        said = advice(replace(audit, checkpoints={1: rows, 2: rows}))[-1]
        assert "nothing rose" not in said
        assert "`all_checkpoints` shows" in said


def test_nothing_missing_and_nothing_to_tell_are_said() -> None:
    assert "Nothing asked about is missing" in advice(audited(shape=0.9))[0]
    audit = audited(shape=0.9, light=None)
    for command, how in (
        ("widefield probe run", "`widefield probe run`"),
        (None, "in Python, `probe(features='wide')`"),
    ):
        (step,) = advice(replace(audit, wide_probe=command))
        assert step.startswith("Data: floor and ceiling nearly meet for light")
        assert step.endswith(how)


@pytest.mark.parametrize(
    ("encoder", "data", "labels", "specs", "command"),
    [
        ("run", None, None, ("a:train", "a:test"), "run a:test --train-data a:train"),
        ("run", "b", None, ("a", "b"), "run b --train-data a"),
        ("timm:x", "my a", "l.csv", ("my a:train", "my a:test"), "timm:x 'my a' --labels l.csv"),
        ("run", None, "l.csv", ("a:train", "a:test"), "run --labels l.csv"),
        ("run", {}, None, (MEMORY, MEMORY), None),
        ("run", None, None, (MEMORY, "a:test"), None),
        ("run", "a", {"row 0": "b"}, ("a:train", "a:test"), None),
        (torch.nn.Flatten(), "a", None, ("a:train", "a:test"), None),
    ],
)
def test_the_wide_readout_is_probed_by_a_command_where_all_has_a_name(
    encoder: Any, data: Any, labels: Any, specs: tuple[str, str], command: str | None
) -> None:
    train, test = (SimpleNamespace(spec=spec) for spec in specs)
    split: Any = SimpleNamespace(train=train, test=test)
    expected = None if command is None else f"widefield probe {command} --features wide"
    assert _wide_probe(encoder, data, labels, split) == expected


def test_the_settings_of_a_run_are_those_of_its_recipe(tmp_path: Path) -> None:
    recipe = make_recipe(method="byol", epochs=7)
    run = RunFolder(path=tmp_path)
    run.write_settings({"format": FORMAT, "data": "photos", "recipe": recipe.to_dict()})
    assert run.recipe().flat() == recipe.flat()


@pytest.mark.parametrize("method", METHODS)
def test_a_run_of_any_method_is_advised_on_what_it_reads(method: str) -> None:
    memory = Memory(host=10**12)
    facts = RunContext(examples=100, inputs=COLOR_32, device=torch.device("cpu"), memory=memory)
    recipe, _ = resolve("default", {"method": method}, facts)  # as a run keeps it
    settings = recipe.flat()
    with command_line():
        text = " ".join(advice(audited(settings, shape=0.5)))
    advised = {name.replace("-", "_") for name in named(text) - OF_THE_AUDIT}
    assert advised <= settings.keys()
    assert ("logit_scale" in advised) == ("logit_scale" in settings)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_chose_no_value_yet_is_advised_too(method: str) -> None:
    settings = make_recipe(method=method).flat()  # None: as long as the run is
    assert "None" not in " ".join(advice(audited(settings, shape=0.5)))
