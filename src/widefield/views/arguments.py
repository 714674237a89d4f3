"""Every setting of the view policies, by its flat name.

Written by scripts/arguments.py from the settings themselves.
"""

from typing import Annotated, Literal, TypedDict

from annotated_types import Ge, Gt, Le


class ViewArguments(TypedDict, total=False):
    """Settings of view policies as keyword arguments."""

    cutout_size: Annotated[float, Gt(0), Le(1)]
    noise_std: Annotated[float, Gt(0)]
    viewmaker_budget: Annotated[float, Gt(0)]
    viewmaker_lr: Annotated[float, Gt(0)]
    viewmaker_shape: Literal["sphere", "ball"]
    viewmaker_clamp: bool
    attack_budget: Annotated[float, Gt(0)]
    attack_steps: Annotated[int, Ge(1)]
    jitter_std: Annotated[float, Gt(0)]
    scale_spread: Annotated[float, Gt(0)]
    time_mask: Annotated[float, Gt(0), Le(1)]
    channel_drop: Annotated[float, Ge(0), Le(1)]
