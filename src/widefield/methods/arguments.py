"""Every setting of the methods, by its flat name.

Written by scripts/arguments.py from the settings themselves.
"""

from typing import Annotated, Literal, TypedDict

from annotated_types import Ge, Gt, Interval


class MethodArguments(TypedDict, total=False):
    """Settings of methods as keyword arguments."""

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
