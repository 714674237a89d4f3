"""The settings of a run as command-line options, for `pretrain` and `plan`."""

import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any

from cyclopts import Group, Parameter

from widefield.cli.help import group, group_of, with_parameters
from widefield.config.arguments import RecipeArguments

SHOWN_FIRST = ("encoder", "epochs", "batch_size", "lr", "device", "seed", "method", "views", "init")
"""Settings that help shows first in their groups."""
NOT_AT_PROMPT = frozenset(
    {
        *("zero_init_last", "layer_decay", "freeze_norm_layers", "decay_bias_and_norm"),
        *("drop_last", "warmup_steps", "checkpoint_minutes", "metrics_every", "attack_steps"),
        *("projector_batch_norm", "head_init", "head_optimizer", "head_update", "head_moments"),
        *("logit_scale", "cross_entropy_weight"),
        *("head_second_moment", "viewmaker_shape", "viewmaker_clamp", "viewmaker_lr"),
    }
)
"""Settings that Python and a `--config` file have, and the command line has not: help shows at most
40 options."""


def all_options() -> list[inspect.Parameter]:
    """Return an option for every setting of any method and views; imports none of them."""
    return [_option(name, kind) for name, kind in _kinds().items() if name not in NOT_AT_PROMPT]


def refuse_python_only(words: list[str]) -> None:
    """Refuse options that the command line does not have, though Python does.

    Raises:
        ValueError: there is one; the message says where to set it.
    """
    for word in words:
        option = word.partition("=")[0]
        name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        if option.startswith("--") and name in NOT_AT_PROMPT:
            remedy = f"set {name} in a --config file or in Python"
            raise ValueError(f"{option} is not an option of the command line: {remedy}")


def options_of(words: list[str]) -> list[inspect.Parameter]:
    """Return the options of the recipe, method and views named in `words`, with real defaults.

    Raises:
        ValueError: a name that does not exist.
    """
    from widefield.config.recipe import PARTS, RUN_SETTINGS, Recipe
    from widefield.config.recipes import AUTO, make_recipe
    from widefield.core.settings import describe, help_texts
    from widefield.views import VIEWS

    named = {name: _value_of(name, words) for name in ("recipe", "method", "views")}
    given: dict[str, Any] = {name: v for name, v in named.items() if v and name != "recipe"}
    epochs, start = _value_of("epochs", words) or "", _value_of("init", words)
    if start:
        given["init"] = start
    if epochs.isdecimal() and int(epochs):  # others are refused as the words are read
        given["epochs"] = int(epochs)
    recipe = make_recipe(named["recipe"] or "default", **given)
    texts = help_texts(Recipe)
    groups = {name: group(group_of(name, "Training")) for name in (*PARTS, *RUN_SETTINGS)}
    for place, part in [
        (group("Training"), recipe.encoder),
        (group("Method", recipe.method.name), recipe.method),
        *((group("Views", name), settings) for name, settings in recipe.views.policies),
    ]:
        for setting in describe(part).values():
            texts[setting.name], groups[setting.name] = setting.help, place
    texts["views"] += "".join(
        f" {name}: {VIEWS[name].summary}" for name, _ in recipe.views.policies
    )
    kinds = _kinds()
    defaults = recipe.flat()
    if not named["method"] and not named["recipe"]:
        defaults["method"] = AUTO
    return [
        _option(name, kinds[name], f"{texts[name]} [default: {_shown(value)}]", groups[name])
        for name, value in sorted(defaults.items(), key=lambda item: item[0] not in SHOWN_FIRST)
        if name not in NOT_AT_PROMPT
    ]


def with_options(
    command: Callable[..., None], options: list[inspect.Parameter] | None = None
) -> Callable[..., None]:
    """Return `command` with the settings of a run as options, by default those of any method."""
    own = inspect.signature(command).parameters.values()
    fixed = [p for p in own if p.name not in RecipeArguments.__annotations__]
    return with_parameters(command, [*fixed, *(all_options() if options is None else options)])


def _kinds() -> dict[str, Any]:
    """Return the type of every setting; method, views and encoder are names here."""
    typed = {"MethodConfig": str, "ViewSettings": str, "EncoderSettings": str, "Module": str}
    return typing.get_type_hints(RecipeArguments, localns=typed) | {"init": str | None}


def _option(name: str, kind: Any, text: str = "", place: Group | None = None) -> inspect.Parameter:
    parameter = Parameter(help=text, show_default=False, group=place or group("Training"))
    annotation = typing.cast(Any, Annotated)[kind | None, parameter]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _value_of(option: str, words: list[str]) -> str | None:
    """Return what follows `--option` on the command line, if it is there."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == f"--{option}":
            return following
        if word.startswith(f"--{option}="):
            return word.partition("=")[2]
    return None


def _shown(value: object) -> str:
    """Return a default as help shows it."""
    return "not set" if value is None else str(value)
