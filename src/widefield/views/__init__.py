"""Views: x[B, C, H, W] in [0, 1] -> V images of the same content, drawn jointly."""

from collections.abc import Callable
from functools import partial

from torch import Generator, Tensor

from widefield.recipe import check_name
from widefield.views.base import Views as Views
from widefield.views.image import ImageViews as ImageViews


class NoViews(Views):
    """Every view is the image itself."""

    def forward(self, x: Tensor, count: int, generator: Generator | None = None) -> list[Tensor]:
        """`count` times `x`."""
        return [x] * count


VIEWS: dict[str, Callable[[], Views]] = {
    # S-DIET (2025), appendix C.
    "expert": partial(ImageViews, crop_scale=(0.08, 1.0)),
    # Feature Dropout: Tamkin et al. (2022), the expert image views.
    "expert:fd": partial(ImageViews, crop_scale=(0.2, 1.0), blur_sigma=(0.1, 2.0), blur_prob=0.5),
    # Ours: keeps most of the image, for features that a hard crop or a mirror destroys.
    "gentle": partial(ImageViews, crop_scale=(0.7, 1.0), flip_prob=0.0),
    "none": NoViews,
}
"""Every view policy by name."""


def build_views(name: str) -> Views:
    """The view policy `name` of `VIEWS`.

    Raises:
        ValueError: unknown name.

    Example:
        >>> build_views("expert").blur_prob
        0.0
    """
    check_name("views", name, tuple(VIEWS))
    return VIEWS[name]()
