"""What help says of a run is what the run gets, and its options are written from the settings."""

import inspect
import re
import runpy
import typing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from axes import each_value
from widefield.cli.app import build_app, module_of
from widefield.cli.recipe_options import (
    PYTHON_ONLY,
    all_options,
    check_cli_options,
    options_of,
    with_options,
)
from widefield.config.recipe import Recipe
from widefield.config.recipes import AUTO, RECIPES, make_recipe
from widefield.methods import METHODS
from widefield.views import VIEWS

ROOT = Path(__file__).parents[3]


def shown_defaults(*words: str) -> dict[str, str]:
    """Return the default that help gives for each option, of the method that it chose if `auto`."""
    defaults = {}
    for option in options_of(["pretrain", *words]):
        text = help_of(option)
        match = re.search(r" \[default: (.*)\]$", text)
        assert match is not None, option.name
        assert len(text[: match.start()]) > 5, option.name
        defaults[option.name] = match[1]
    if not any(word.startswith(("--method", "--recipe")) for word in words):
        assert defaults["method"] == AUTO
        defaults["method"] = make_recipe(epochs=int(defaults["epochs"])).method.name
    return defaults


def help_of(option: inspect.Parameter) -> str:
    _, parameter = typing.get_args(option.annotation)
    return parameter.help


def as_shown(values: dict[str, Any]) -> dict[str, str]:
    """Return what help shows of a recipe's values: those that the command line can set."""
    return {
        k: "not set" if v is None else str(v) for k, v in values.items() if k not in PYTHON_ONLY
    }


def written(recipe: Recipe) -> dict[str, Any]:
    """Return what `run.yaml` holds of a recipe, under flat names."""
    values = yaml.safe_load(yaml.safe_dump(recipe.to_dict()))
    parts = {"method": [values["method"]], "encoder": [values["encoder"]], "views": values["views"]}
    for name, settings in parts.items():
        values[name] = "+".join(part.pop("name") for part in settings)
        for part in settings:
            values |= flattened(part)
    return values


def flattened(part: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in part.items():
        inner = flattened(value) if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else {f"{name}_{k}": v for k, v in inner.items()}
    return flat


@pytest.mark.parametrize("method", METHODS)
def test_help_shows_the_defaults_that_run_yaml_gets(method: str) -> None:
    recipe = make_recipe(method=method)
    assert (
        shown_defaults("--method", method) == as_shown(recipe.flat()) == as_shown(written(recipe))
    )


@pytest.mark.parametrize("views", [*VIEWS, "viewmaker+noise"])
def test_and_so_for_views(views: str) -> None:
    recipe = make_recipe(views=views)
    assert (
        shown_defaults(f"--views={views}") == as_shown(recipe.flat()) == as_shown(written(recipe))
    )


@pytest.mark.parametrize("epochs", [1, 39, 40, 100])
def test_and_so_for_epochs(epochs: int) -> None:
    """They choose the method, whose settings help shows."""
    recipe = make_recipe(epochs=epochs, method=AUTO)
    assert recipe == make_recipe(epochs=epochs)
    shown = shown_defaults(f"--epochs={epochs}")
    assert shown == as_shown({**recipe.flat(), "epochs": epochs})


def test_help_of_a_run_from_a_start_shows_the_method_of_such_runs() -> None:
    options = {option.name: help_of(option) for option in options_of(["pretrain", "--init", "x"])}
    assert options["init"].endswith("[default: x]")
    assert options.keys() == {*as_shown(make_recipe(method="view-contrast").flat())}


@pytest.mark.parametrize("words", ["--epochs=x", "--epochs=0", "--epochs"])
def test_epochs_that_are_none_show_the_usual_help(words: str) -> None:
    """They are refused when the command gets them."""
    assert shown_defaults(words) == shown_defaults()


@pytest.mark.parametrize("name", RECIPES)
def test_and_so_for_recipes(name: str) -> None:
    recipe = make_recipe(name)
    assert shown_defaults("--recipe", name) == as_shown(recipe.flat()) == as_shown(written(recipe))


def test_every_setting_is_an_option_or_python_only() -> None:
    """Without help, options are those of any method and views: what help shows is among them."""
    names = {option.name for option in all_options()}
    recipes = [make_recipe(method=name) for name in METHODS]
    recipes += [make_recipe(views=name) for name in VIEWS]
    settings = {name for recipe in recipes for name in recipe.flat()}
    assert names == settings - PYTHON_ONLY
    assert settings > PYTHON_ONLY


@each_value(("name", sorted(PYTHON_ONLY)), ("written", ["--{}", "--no-{}", "--{}=3"]))
def test_an_option_that_python_alone_has_is_refused_with_the_remedy(
    name: str, written: str
) -> None:
    option = written.format(name.replace("_", "-"))
    with pytest.raises(ValueError, match=f"set {name} in a --config file or in Python"):
        build_app(["pretrain", "photos", "--out", "run", option])


def test_other_options_are_not_refused() -> None:
    check_cli_options([f"--{option.name.replace('_', '-')}" for option in all_options()])


MOST_OPTIONS = 41
"""Beside those of the views."""


@pytest.mark.parametrize("command", ["pretrain", "plan"])
def test_help_of_the_method_with_most_settings_is_short_with_any_views(command: str) -> None:
    method = max(METHODS, key=lambda name: len(as_shown(METHODS[name]().flat())))
    for views in VIEWS:
        words = ("--method", method, "--views", views)
        own = len(VIEWS[views].settings().flat())
        shown = len(parameters(command, *words)) - 1  # data is no option
        assert shown - own <= MOST_OPTIONS


def parameters(command: str, *words: str) -> dict[str, inspect.Parameter]:
    """Return the parameters that a command has in help."""
    function = getattr(import_module(module_of(command)), command)
    whole = with_options(function, options_of([command, *words]))
    return dict(inspect.signature(whole).parameters)


def test_options_of_one_name_stand_in_one_group_and_the_common_ones_first() -> None:
    names = [option.name for option in options_of(["pretrain"])]
    assert names.index("epochs") < names.index("stem")
    assert names.index("batch_size") < names.index("weight_decay")


def test_the_arguments_are_those_that_the_command_writes() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "arguments.py"))
    for path, text in script["FILES"].items():
        assert (script["SOURCE"] / path).read_text() == text(), "run: python scripts/arguments.py"


def test_the_calls_are_those_that_the_command_writes() -> None:
    source = runpy.run_path(str(ROOT / "scripts" / "options.py"))["source"]
    path = ROOT / "src" / "widefield" / "cli" / "calls.json"
    assert path.read_text() == source(), "run: python scripts/options.py"
