"""Every setting of a run, its method, its views and its encoder, by its flat name.

Written by scripts/arguments.py from the settings themselves; importing it imports nothing of them.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from widefield.methods.arguments import MethodArguments
from widefield.views.arguments import ViewArguments

if TYPE_CHECKING:
    from torch.nn import Module

    from widefield.encoders import EncoderSettings
    from widefield.methods import MethodConfig
    from widefield.views import ViewSettings


class RecipeArguments(MethodArguments, ViewArguments, total=False):
    """Keyword arguments of `widefield.pretrain` and options of `widefield pretrain`."""

    method: "str | MethodConfig"
    views: "str | ViewSettings"
    encoder: "str | EncoderSettings | Module"
    init: "str | PathLike[str] | Module | None"
    teacher: "str | PathLike[str] | Sequence[str | PathLike[str]]"
    stem: Literal["auto", "cifar", "small", "native"]
    zero_init_last: bool
    init_lr_scale: Annotated[float | None, Gt(0)]
    layer_decay: Annotated[float, Gt(0), Le(1)]
    freeze_blocks: Annotated[int, Ge(0)]
    freeze_norm_layers: bool
    init_average: Annotated[float | None, Gt(0), Le(1)]
    epochs: Annotated[int, Ge(1)]
    batch_size: Annotated[int, Ge(1)]
    micro_batch: Annotated[int | None, Ge(1)]
    sync_batch_norm: bool
    optimizer: Literal["adamw", "sgd", "lars"]
    schedule: Literal["cosine", "constant"]
    weight_decay: Annotated[float, Ge(0)]
    decay_bias_and_norm: bool
    drop_last: bool
    warmup_epochs: Annotated[float, Ge(0)]
    warmup_steps: Annotated[int | None, Ge(0)]
    precision: Literal["auto", "32", "bf16"]
    compile: Literal["none", "default", "reduce-overhead"]
    device: Literal["auto", "cpu", "cuda"]
    seed: Annotated[int, Ge(0), Lt(4294967296)]
    max_examples: Annotated[int | None, Gt(0)]
    image_size: Annotated[int | str | None, Gt(0)]
    fit: Literal["crop", "pad", "squash"]
    pixels: Literal["auto", "decoded", "encoded"]
    seconds: Annotated[float | None, Gt(0)]
    sample_rate: Annotated[int | None, Ge(1000)]
    checkpoint_every: Annotated[int, Ge(1)]
    checkpoint_minutes: Annotated[float, Gt(0)]
    metrics_every: Annotated[int, Ge(1)]
    health_every: Annotated[int, Ge(1)]
