"""Every method and its settings: docs/methods.md."""

import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from pages.format import ratio, table
from pages.steps import step_ratios
from studies.page import results, runs
from studies.registry import study
from widefield.config.recipes import make_recipe
from widefield.methods import METHODS, Method, MethodConfig, ProjectorConfig
from widefield.train.build import DataInfo, build

COMMON = (
    "lr",
    "gather_distributed",
    "teacher",
    *(f"projector_{name}" for name in ProjectorConfig().flat()),
)
"""Settings that have columns of their own, or that most methods share."""


NOT_MEASURED = "not measured"


def methods() -> str:
    """Return each method's summary, number of views, cost of a step and source."""
    steps = step_ratios("resnet-tiny")
    rows = [
        [
            f"[`{name}`](../{_path(settings)})",
            _summary(settings),
            str(_built(name).view_count),
            ratio(steps[name]) if name in steps else NOT_MEASURED,
            _source(name),
        ]
        for name, settings in METHODS.items()
    ]
    return table(["method", "objective", "views", "step", "source"], rows)


def settings() -> str:
    """Return each method's default settings."""
    rows, compared = [], _compared()
    for name, kind in METHODS.items():
        values = kind().flat()
        lr = f"{values['lr']:g}" + ("" if name in compared else f" ({NOT_MEASURED})")
        own = (f"`{key}` {_shown(value)}" for key, value in values.items() if key not in COMMON)
        rows.append([f"`{name}`", lr, _projector(values), ", ".join(own)])
    return table(["method", "`lr`", "projector", "other settings"], rows)


def _compared() -> set[str]:
    """Return the methods of which results have several learning rates, on validation images."""
    in_one_study = {run.partition(" @ ")[0] for run in runs("budget-rates")}
    return in_one_study | {name for name in METHODS if results(study(f"rate-{name}"))}


def losses() -> str:
    """Return the loss functions of each method with their equations, from their docstrings."""
    parts = []
    for module, names in _modules().items():
        functions = vars(sys.modules[module]).values()
        title = ", ".join(f"`{name}`" for name in names)
        parts += [
            f"**{title}**, `{f.__name__}`. {_equation(f)}"
            for f in functions
            if _is_loss(f) and _equation(f)
        ]
    return "\n\n".join(parts)


def _modules() -> dict[str, list[str]]:
    """Return the methods of each module: most have one, DIET's has both of its losses."""
    modules: dict[str, list[str]] = {}
    for name, kind in METHODS.items():
        modules.setdefault(kind.__module__, []).append(name)
    return modules


def _is_loss(value: Any) -> bool:
    """Return whether it is a function that is computed in full precision, as all losses are."""
    return inspect.isfunction(value) and "__wrapped__" in vars(value)


def _equation(function: Callable[..., Any]) -> str:
    """Return what a loss's docstring says of it before what it raises; nothing without equation."""
    text = re.split(r"\n\n(?:Raises|Example):", inspect.getdoc(function) or "")[0]
    paragraphs = text.split("\n\n")
    if not any(p.startswith("    ") and " = " in p for p in paragraphs):
        return ""
    return "\n\n".join(
        f"```text\n{textwrap.dedent(p)}\n```" if p.startswith("    ") else " ".join(p.split())
        for p in paragraphs
    )


def _path(settings: type[MethodConfig]) -> str:
    return f"src/{settings.__module__.replace('.', '/')}.py"


def _summary(settings: type[MethodConfig]) -> str:
    """Return the first line of the method's file, or of its class where the file has several."""
    several = len(_modules()[settings.__module__]) > 1
    text = (settings.method_class if several else sys.modules[settings.__module__]).__doc__ or ""
    return text.splitlines()[0].removesuffix(".")


def _source(name: str) -> str:
    """Return the source that the docstring of the method's class names."""
    text = inspect.getdoc(type(_built(name))) or ""
    match = re.search(r"Source: (.+?)\.?\s*(\n\s*\n|$)", text, re.DOTALL)
    return "" if match is None else " ".join(match[1].split())


@cache
def _built(name: str) -> Method:
    """Return the method, built for two dozen small images."""
    facts = DataInfo(examples=24, image_size=16, labels={"class": torch.arange(24) % 3})
    recipe = make_recipe(method=name, encoder="resnet-tiny", batch_size=12)
    return build(recipe, facts, device=torch.device("cpu")).method


def _projector(values: dict[str, Any]) -> str:
    if "projector_dim" not in values:
        return "none"
    hidden = [str(values["projector_width"])] * (values["projector_layers"] - 1)
    widths = " - ".join([*hidden, str(values["projector_dim"])])
    return widths if values["projector_batch_norm"] else f"{widths}, no batch norm"


def _shown(value: object) -> str:
    if value is None:
        return "by the number of steps"
    return f"{value:g}" if isinstance(value, float) else str(value)
