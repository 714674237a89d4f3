"""Every setting of a run, its method, its views and its encoder, by its flat name.

Written by scripts/arguments.py from the settings themselves; importing it imports nothing of them.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from annotated_types import Ge, Gt, Interval, Le, Lt

if TYPE_CHECKING:
    from torch.nn import Module

    from widefield.encoders import EncoderSettings
    from widefield.methods import MethodConfig
    from widefield.views import ViewSettings


class RecipeArguments(TypedDict, total=False):
    """Keyword arguments of `widefield.pretrain` and options of `widefield pretrain`."""

    method: "str | MethodConfig"
    views: "str | ViewSettings"
    encoder: "str | EncoderSettings | Module"
    init: "str | PathLike[str] | Module | None"
    teacher: "str | PathLike[str] | Sequence[str | PathLike[str]]"
    stem: Literal["auto", "cifar", "small", "native"]
    zero_init_last: bool
    init_lr_scale: Annotated[float, Gt(0)]
    layer_decay: Annotated[float, Gt(0), Le(1)]
    freeze_blocks: Annotated[int, Ge(0)]
    freeze_norm_layers: bool
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
    lr: Annotated[float, Gt(0)]
    projector_layers: Annotated[int, Ge(0)]
    projector_width: Annotated[int, Ge(1)]
    projector_dim: Annotated[int, Ge(1)]
    projector_batch_norm: bool
    gather_distributed: bool
    head_lr_scale: Annotated[float, Gt(0)]
    head_init: Literal["embedding", "random"]
    head_optimizer: Literal["adamw", "sgd"]
    head_update: Literal["exact", "estimated"]
    head_storage: Literal["auto", "device", "host", "disk"]
    head_moments: Literal["float32", "bf16"]
    head_second_moment: Literal["element", "row"]
    logit_scale: Annotated[float | None, Gt(0)]
    cross_entropy_weight: Annotated[float | None, Gt(0)]
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)]
    normalize: bool
    temperature: Annotated[float, Gt(0)]
    loss: Literal["nt-xent", "one-sided"]
    eps: Annotated[float, Ge(0)]
    pair_importance: Literal["quadratic", "infonce", "gaussian", "inverse"]
    off_diagonal_weight: Annotated[float, Gt(0)]
    invariance_weight: Annotated[float, Gt(0)]
    variance_weight: Annotated[float, Gt(0)]
    cov_weight: Annotated[float, Gt(0)]
    local_weight: Annotated[float, Ge(0)]
    sigreg_weight: Annotated[float, Interval(gt=0, lt=1)]
    slices: Annotated[int, Ge(1)]
    ema_decay: Annotated[float, Interval(ge=0, le=1)]
    queue_size: Annotated[int, Ge(1)]
    predictor_width: Annotated[int, Ge(1)]
    directions: Literal["both", "one"]
    cutout_size: Annotated[float, Gt(0), Le(1)]
    noise_std: Annotated[float, Gt(0)]
    viewmaker_budget: Annotated[float, Gt(0)]
    viewmaker_shape: Literal["sphere", "ball"]
    viewmaker_clamp: bool
    viewmaker_lr: Annotated[float, Gt(0)]
    attack_budget: Annotated[float, Gt(0)]
    attack_steps: Annotated[int, Ge(1)]
    jitter_std: Annotated[float, Gt(0)]
    scale_spread: Annotated[float, Gt(0)]
    time_mask: Annotated[float, Gt(0), Le(1)]
    channel_drop: Annotated[float, Ge(0), Le(1)]


METHOD_NAMES = (
    "view-contrast",
    "row-contrast",
    "s-diet",
    "diet",
    "diet-mse",
    "simclr",
    "dcl",
    "infonce",
    "alpha-cl",
    "spectral",
    "barlow-twins",
    "vicreg",
    "mmcr",
    "lejepa",
    "moco",
    "byol",
    "simsiam",
    "distill",
    "supervised",
)


VIEW_NAMES = (
    "expert",
    "expert:feature-dropout",
    "expert:stacked",
    "gentle",
    "moderate",
    "microscopy",
    "xray",
    "satellite",
    "documents",
    "turn",
    "none",
    "crop",
    "flip",
    "color",
    "random-mask",
    "cutout",
    "noise",
    "noise:object",
    "viewmaker",
    "viewmaker:published",
    "mask-viewmaker",
    "adversarial",
    "jitter",
    "scale",
    "time-mask",
    "channel-drop",
    "specaug",
    "specaug:published",
    "waveaug",
    "waveaug:published",
)
