"""Every setting of a run, its method, its views and its encoder, by its flat name.

Written by scripts/arguments.py from the settings themselves; importing it imports nothing of them.
"""

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypedDict

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
    init_lr_scale: float
    layer_decay: float
    freeze_blocks: int
    freeze_norm_layers: bool
    epochs: int
    batch_size: int
    micro_batch: int | None
    optimizer: Literal["adamw", "sgd", "lars"]
    schedule: Literal["cosine", "constant"]
    weight_decay: float
    decay_bias_and_norm: bool
    drop_last: bool
    warmup_epochs: float
    warmup_steps: int | None
    precision: Literal["auto", "32", "bf16"]
    device: Literal["auto", "cpu", "cuda"]
    seed: int
    max_examples: int | None
    image_size: int | str | None
    seconds: float | None
    sample_rate: int | None
    checkpoint_every: int
    checkpoint_minutes: float
    metrics_every: int
    health_every: int
    lr: float
    projector_layers: int
    projector_width: int
    projector_dim: int
    projector_batch_norm: bool
    gather_distributed: bool
    head_lr_scale: float
    head_init: Literal["embedding", "random"]
    head_optimizer: Literal["adamw", "sgd"]
    head_update: Literal["exact", "estimated"]
    head_storage: Literal["auto", "device", "host", "disk"]
    head_moments: Literal["float32", "bf16"]
    head_second_moment: Literal["element", "row"]
    logit_scale: float | None
    cross_entropy_weight: float | None
    label_smoothing: float
    normalize: bool
    temperature: float
    loss: Literal["nt-xent", "one-sided"]
    eps: float
    pair_importance: Literal["quadratic", "infonce", "gaussian", "inverse"]
    off_diagonal_weight: float
    invariance_weight: float
    variance_weight: float
    cov_weight: float
    local_weight: float
    sigreg_weight: float
    slices: int
    ema_decay: float
    queue_size: int
    predictor_width: int
    directions: Literal["both", "one"]
    cutout_size: float
    noise_std: float
    viewmaker_budget: float
    viewmaker_shape: Literal["sphere", "ball"]
    viewmaker_clamp: bool
    viewmaker_lr: float
    attack_budget: float
    attack_steps: int
    jitter_std: float
    scale_spread: float
    time_mask: float
    channel_drop: float
