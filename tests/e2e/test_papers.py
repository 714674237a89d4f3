"""Commands in docs/papers.yaml can be typed as they stand, and a status rests on a file."""

import argparse
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from pages import papers
from pages.format import ROOT
from studies import registry
from widefield.cli.app import build_app
from widefield.config.recipes import make_recipe
from widefield.data.spec import parse
from widefield.encoders import encoder_config
from widefield_labs import LABS
from widefield_labs.lab import check_parameter

COMMANDS = sorted({command for row in registry.rows() for command in row.get("commands", ())})
DATA = {"pretrain": 0, "plan": 0, "probe": 1, "audit": 1}
"""Which position on the command line holds data, where there is something in it."""


class Parsed(Exception):
    """A script got as far as its arguments."""


@pytest.fixture
def in_data_folder(in_tmp: Path) -> None:
    """The current folder has the images that commands name."""
    for name in ("imagenet100", "tinyimagenet"):
        (in_tmp / name).mkdir()


def check_widefield(words: list[str]) -> None:
    """Parse a command by the real parser; names that it leaves to the command are looked up too."""
    _, bound, _ = build_app(words).parse_args(words, exit_on_error=False, print_error=False)
    name, values = words[0], {k: v for k, v in bound.kwargs.items() if v is not None}
    if name in DATA and len(bound.args) > DATA[name]:
        parse(bound.args[DATA[name]])
    if "train_data" in values:
        parse(values["train_data"])
    if name in ("pretrain", "plan"):
        settings = {k: v for k, v in values.items() if k not in ("out", "recipe", "resume", "json")}
        recipe = make_recipe(values.get("recipe", "default"), **settings)
        recipe.views.build()
        if recipe.encoder.name != "auto":
            encoder_config(recipe.encoder.name, stem=recipe.encoder.stem)
    if name == "lab":
        check_lab(bound.args[0], values)


def check_lab(name: str, values: dict[str, Any]) -> None:
    """Check the parameters of a lab, which it checks itself only when it runs."""
    lab, options = LABS[name], ("scale", "seed", "out", "parameters", "json")
    for key, value in lab.parse({k: v for k, v in values.items() if k not in options}).items():
        check_parameter(key, lab.parameters[key].annotation, value)


def check_benchmark(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse the arguments of a script by its own parser, and go no further."""
    script = Path(words[0])
    assert (ROOT / script).is_file()
    original = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> None:
        original(parser, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    monkeypatch.setattr(sys, "argv", [script.name, *words[1:]])
    with pytest.raises(Parsed):
        import_module(script.stem).main()


def check_test(words: list[str]) -> None:
    """Look a test up by file and name."""
    (address,) = words
    path, _, name = address.partition("::")
    text = (ROOT / path).read_text()
    assert not name or f"def {name}(" in text


def check(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *words = shlex.split(command)
    if program == "widefield":
        check_widefield(words)
    elif program == "python":
        check_benchmark(words, monkeypatch)
    else:
        assert program == "pytest"
        check_test(words)


@pytest.mark.usefixtures("in_data_folder")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_can_be_typed(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(command, monkeypatch)


@pytest.mark.usefixtures("in_data_folder")
@pytest.mark.parametrize(
    "command",
    [
        "widefield pretrain cifar10 --recipe s-diet-papers --out run",
        "widefield pretrain cifar10 --recipe s-diet-paper --method simclr --out run",
        "widefield pretrain cifar10+shapes:published --out run",
        "widefield pretrain cifar10 --encoder alex-net --out run",
        "widefield pretrain cifar10 --views adversarial+crop --out run",
        "widefield pretrain cifar10 --widths 3 --out run",
        "widefield pretrain cifar10",
        "widefield probe run cifar11",
        "widefield lab diet-toys",
        "widefield lab diet-toy --class 3",
        "python benchmarks/nothing.py",
        "pytest tests/reference/test_losses.py::test_nothing",
    ],
)
def test_a_command_that_is_wrong_does_not_pass(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((Exception, SystemExit)) as refused:
        check(command, monkeypatch)
    assert not isinstance(refused.value, Parsed)


def test_rows_are_told_apart() -> None:
    ids = [row["id"] for row in registry.rows()]
    assert len(set(ids)) == len(ids) > 100


@pytest.mark.parametrize("row", registry.rows(), ids=lambda row: row["id"])
def test_a_status_rests_on_a_study_or_a_committed_file(row: dict[str, Any]) -> None:
    assert papers.status(row) in papers.STATUSES
    if "study" in row:
        assert row.keys() <= {"id", "shows", "study", "note"}
        assert row["id"] in {finding.id for finding in registry.study(row["study"]).findings}
        return
    assert row.keys() <= {"id", "shows", "commands", "status", "evidence", "note"}
    assert ("evidence" in row) == (papers.status(row) != "not run")
    if "evidence" in row:
        assert row["commands"], "what was measured has a command"
        assert (ROOT / row["evidence"]).is_file()
