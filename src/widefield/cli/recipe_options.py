"""Command-line options for the settings of a run, for `pretrain` and `plan`."""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from widefield.cli.help import group, group_of, with_parameters
from widefield.cli.signature import written
from widefield.config.arguments import RecipeArguments
from widefield.core.errors import option
from widefield.core.names import check_name
from widefield.core.validation import check

if TYPE_CHECKING:
    from widefield.config.recipe import Recipe

Config = Annotated[
    Path | None,
    Parameter(help="Start from the settings in this file: a run.yaml, or an edited copy of one."),
]
SHOWN_FIRST = (
    *("encoder", "epochs", "batch_size", "lr", "device", "seed"),
    *("method", "views", "init", "teacher"),
)
"""Settings at the top of their groups in help."""
PYTHON_ONLY = frozenset(
    {
        *("zero_init_last", "layer_decay", "decay_bias_and_norm", "warmup_epochs"),
        "optimizer",
        *("drop_last", "warmup_steps", "checkpoint_minutes", "metrics_every", "attack_steps"),
        *("projector_batch_norm", "head_init", "head_optimizer", "head_update", "head_moments"),
        *("logit_scale", "cross_entropy_weight", "label_smoothing", "head_lr_scale"),
        *("projector_layers", "schedule", "pixels", "sync_batch_norm", "compile"),
        *("head_second_moment", "viewmaker_shape", "viewmaker_clamp", "viewmaker_lr"),
    }
)
"""Settings of Python and `--config` files only, because help has at most 41 options."""


def all_options() -> list[inspect.Parameter]:
    """Return an option for every setting of all methods and views, without importing them."""
    return [_option(name, kind) for name, kind in _kinds().items() if name not in PYTHON_ONLY]


def check_cli_options(words: list[str]) -> None:
    """Check that `words` have no options that are available in Python only."""
    for word in words:
        option = word.partition("=")[0]
        name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
        if option.startswith("--") and name in PYTHON_ONLY:
            hint = f"set {name} in a --config file or in Python"
            raise ValueError(f"{option} is not an option of the command line: {hint}")


def check_settings(values: Mapping[str, Any], *, devices: Collection[str] = ()) -> None:
    """Check settings of a run as far as that needs no torch; `devices` are further ones."""
    hints = _kinds()
    for name, value in values.items():
        if value is None or value == "auto":
            continue
        if name == "method":
            check_name("method", value, written()["settings"]["methods"])
        elif name == "views":
            for policy in value.split("+"):
                check_name("views", policy, written()["settings"]["views"])
        elif name == "device":
            check_name("device", value, (*typing.get_args(_hints()["device"]), *devices))
        elif name in hints and name not in ("encoder", "init", "teacher"):
            check(option(name), hints[name], value)


def options_of(words: list[str]) -> list[inspect.Parameter]:
    """Return the options of the recipe, method and views in `words`, with their defaults."""
    defaults, help_texts = _defaults(words), written()["settings"]
    method, policies = defaults["method"], defaults["views"].split("+")
    texts = dict(help_texts["run"])
    groups = {name: group(group_of(name, "Training")) for name in texts}
    for option_group, part in [
        (group("Training"), help_texts["encoder"]),
        (group("Method", method), help_texts["methods"][method]),
        *((group("Views", name), help_texts["views"][name]) for name in policies),
    ]:
        texts |= part
        groups |= dict.fromkeys(part, option_group)
    texts["views"] += "".join(f" {name}: {help_texts['summaries'][name]}" for name in policies)
    if not _value_of("method", words) and not _value_of("recipe", words):
        defaults["method"] = "auto"
    kinds = _kinds()
    return [
        _option(name, kinds[name], f"{texts[name]} [default: {defaults[name]}]", groups[name])
        for name in sorted(defaults, key=lambda name: name not in SHOWN_FIRST)
        if name not in PYTHON_ONLY
    ]


def _defaults(words: list[str]) -> dict[str, str]:
    """Return the default of each setting of the recipe, method and views in `words`, as text."""
    defaults = written()["defaults"]
    name, method = _value_of("recipe", words) or "default", _value_of("method", words)
    check_name("recipe", name, defaults["recipes"])
    recipe = defaults["recipes"][name]
    epochs, init = _value_of("epochs", words) or "", _value_of("init", words)
    if not epochs.isdecimal() or int(epochs) == 0:  # errors are raised by the parser
        epochs = recipe["methods"][recipe["long"]]["epochs"]
    if method in (None, "auto"):
        is_long = int(epochs) >= defaults["long_run_epochs"] and not init
        method = recipe["long" if is_long else "short"]
    check_name("method", method, recipe["methods"])
    found = recipe["methods"][method] | {"epochs": epochs} | ({"init": init} if init else {})
    views = _value_of("views", words)
    return _with_views(found, views, defaults["views"]) if views else found


def _with_views(
    settings: dict[str, str], names: str, policies: dict[str, dict[str, str]]
) -> dict[str, str]:
    """Return settings with other views, which keep the settings that they share with these."""
    for name in names.split("+"):
        check_name("views", name, policies)
    before, now = (
        {key: value for name in each.split("+") for key, value in policies[name].items()}
        for each in (settings["views"], names)
    )
    others = {key: value for key, value in settings.items() if key not in before}
    shared = {key: settings[key] for key in before if key in now}
    return others | now | shared | {"views": names}


def with_options(
    command: Callable[..., None], options: list[inspect.Parameter] | None = None
) -> Callable[..., None]:
    """Return `command` with settings as options, by default those of all methods."""
    parameters = inspect.signature(command).parameters.values()
    fixed = [p for p in parameters if p.name not in RecipeArguments.__annotations__]
    return with_parameters(command, [*fixed, *(all_options() if options is None else options)])


def _hints() -> dict[str, Any]:
    """Return type and range of every setting in Python, str for method, views and encoder."""
    typed = {"MethodConfig": str, "ViewSettings": str, "EncoderSettings": str, "Module": str}
    return typing.get_type_hints(RecipeArguments, localns=typed, include_extras=True)


def _kinds() -> dict[str, Any]:
    """Return type and range of every setting on the command line.

    `check_settings` checks the device, because `plan` takes more of them than there are here.
    """
    return _hints() | {"init": str | None, "teacher": list[str], "device": str}


def _option(name: str, kind: Any, text: str = "", place: Group | None = None) -> inspect.Parameter:
    parameter = Parameter(help=text, show_default=False, group=place or group("Training"))
    base = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    annotation = typing.cast(Any, Annotated)[base | None, parameter]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _value_of(option: str, words: list[str]) -> str | None:
    for word, next_word in zip(words, [*words[1:], ""], strict=True):
        if word == f"--{option}":
            return next_word
        if word.startswith(f"--{option}="):
            return word.partition("=")[2]
    return None


def settings_of(recipe: str, config: Path | None) -> "str | Recipe":
    """Return the name of a recipe, or the recipe in the file `config`."""
    if config is None:
        return recipe
    if recipe != "default":
        raise ValueError(f"--config has a whole recipe already: leave out --recipe {recipe}")
    if not config.exists():
        raise ValueError(f"no settings at {config}: give the run.yaml of a run, or a copy of one")
    from widefield.train.run_dir import load_recipe

    return load_recipe(config)
