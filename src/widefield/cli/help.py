"""Layout of help: options in groups, with examples below."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, cast

from cyclopts import Group, Parameter

ORDER = ("Data", "Training", "Method", "Views", "Start", "Options", "Output")

MEMBERS: Mapping[str, Iterable[str]] = {
    "Data": (
        *("data", "train_data", "labels", "group", "max_examples", "image_size", "plant", "task"),
        *("feature", "seconds", "sample_rate", "examples"),
    ),
    "Start": (
        *("init", "init_lr_scale", "init_average", "freeze_blocks", "freeze_norm_layers"),
        "download",
    ),
    "Method": ("recipe", "config", "method", "methods"),
    "Views": ("views",),
    "Output": (
        *("out", "overwrite", "resume", "json", "checkpoint_every", "health_every", "cache"),
        *("suggest", "parameters", "tables", "logger"),
    ),
}
"""Options of each group; others are in Training for a run, and in Options for a command."""

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "demo": ("widefield demo --out demo", "widefield demo --audio --out demo"),
    "plan": (
        "widefield plan ./my-images",
        "widefield plan ./my-images --method simclr",
        "widefield plan --examples 1e8 --image-size 224 --device h100",
    ),
    "pretrain": (
        "widefield pretrain ./my-images --out run",
        "widefield pretrain ./my-images --out run --resume",
        "widefield pretrain ./my-images --out other --config run/run.yaml --seed 1",
        "widefield pretrain ./my-images --out adapted --init timm:resnet18",
    ),
    "probe": (
        "widefield probe run ./labeled:test --train-data ./labeled:train",
        "widefield probe run ./my-images --labels labels.csv",
        "widefield probe timm:resnet18 photos:test --train-data photos:train",
    ),
    "audit": (
        "widefield audit run ./labeled --out report.html",
        "widefield audit weights.pth@resnet50 ./my-images --plant shapes,digits",
    ),
    "explore": (
        "widefield explore run ./my-images --out explore.html",
        "widefield explore timm:resnet18 ./my-images --out explore.html --tables tables",
    ),
    "classify": ("widefield classify run ./my-images --labels labels.csv --out classes.csv",),
    "search": ("widefield search run ./my-images --image query.jpg --out nearest.html",),
    "embed": ("widefield embed run ./my-images --out features.parquet",),
    "export": ("widefield export run --out encoder.safetensors",),
    "recover": (
        "widefield recover run --feature digits --out recovered",
        "widefield recover run --feature labels.csv --out recovered",
    ),
    "views": (
        "widefield views ./my-images --out views.html",
        "widefield views ./my-images --views expert,microscopy --out views.png",
    ),
    "lab": ("widefield lab", "widefield lab multistep --scale tiny --out figure.svg"),
    "completion": ('eval "$(widefield completion bash)"    # in ~/.bashrc',),
}


def group(name: str, detail: str = "") -> Group:
    """Return the group of options `name`, whose title may have a `detail`."""
    return Group(f"{name} {detail}".strip(), sort_key=ORDER.index(name))


def group_of(option: str, default: str) -> str:
    """Return the name of the group of an option."""
    return next((name for name, members in MEMBERS.items() if option in members), default)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return `command` with a group for each option."""
    signature = inspect.signature(command)
    parameters = []
    for parameter in signature.parameters.values():
        parts = getattr(parameter.annotation, "__metadata__", ())
        has_group = any(isinstance(part, Parameter) and part.group for part in parts)
        if parameter.kind is parameter.KEYWORD_ONLY and not has_group:
            option_group = Parameter(group=group(group_of(parameter.name, "Options")))
            annotation = cast(Any, Annotated)[parameter.annotation, option_group]
            parameter = parameter.replace(annotation=annotation)
        parameters.append(parameter)
    return with_parameters(command, parameters)


def with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Return `command` with the signature `parameters`."""

    def wrapped(*args: Any, **kwargs: Any) -> None:
        command(*args, **kwargs)

    wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapped


def examples(command: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n".join(["Examples:", *(f"  {line}" for line in EXAMPLES[command])])
