"""Views: x[B, C, H, W] in [0, 1] -> V images of the same content, drawn jointly."""

from collections.abc import Callable
from functools import partial
from typing import Any

from widefield.core.names import check_name
from widefield.core.rng import seeded
from widefield.recipe import Recipe
from widefield.views.adversarial import Adversarial
from widefield.views.base import Scene as Scene
from widefield.views.base import Views as Views
from widefield.views.chain import Chain
from widefield.views.image import ImageViews as ImageViews
from widefield.views.noise import Noise, ObjectNoise
from widefield.views.simple import NoViews, RandomMask
from widefield.views.stacked import StackedViews
from widefield.views.viewmaker import Viewmaker as Viewmaker

Factory = Callable[[Recipe, int], Views]
"""A policy, from the recipe and the number of channels."""


def _image(**settings: Any) -> Factory:
    return lambda recipe, channels: ImageViews(**settings)


def _viewmaker(recipe: Recipe, channels: int, *, spare_object: bool = False) -> Views:
    return Viewmaker(
        channels=channels,
        budget=recipe.viewmaker_budget,
        shape=recipe.viewmaker_shape,
        clamp=recipe.viewmaker_clamp,
        spare_object=spare_object,
    )


def _stacked(recipe: Recipe, channels: int) -> Views:
    weaker = ImageViews(
        crop_scale=(0.75, 1.0),
        flip_prob=0.0,
        grayscale_prob=0.0,
        blur_sigma=(0.1, 2.0),
        blur_prob=0.5,
    )
    return StackedViews(image=ImageViews(crop_scale=(0.08, 1.0)), rest=weaker)


VIEWS: dict[str, Factory] = {
    # S-DIET (2025), appendix C.
    "expert": _image(crop_scale=(0.08, 1.0)),
    # Feature Dropout (Tamkin et al. 2022), the expert image views.
    "expert:fd": _image(crop_scale=(0.2, 1.0), blur_sigma=(0.1, 2.0), blur_prob=0.5),
    # S-DIET (2025), appendix C: weaker views of a digit that is stacked as a fourth channel.
    "expert:stacked": _stacked,
    # Ours: keeps most of the image, for features that a hard crop or a mirror destroys.
    "gentle": _image(crop_scale=(0.7, 1.0), flip_prob=0.0),
    "none": lambda recipe, channels: NoViews(),
    "crop": _image(crop_scale=(0.08, 1.0), flip_prob=0.0, jitter_prob=0.0, grayscale_prob=0.0),
    "flip": _image(crop_scale=None, jitter_prob=0.0, grayscale_prob=0.0),
    "colour": _image(crop_scale=None, flip_prob=0.0),
    "random-mask": lambda recipe, channels: RandomMask(),
    "noise": lambda recipe, channels: Noise(std=recipe.noise_std),
    "noise:object": lambda recipe, channels: ObjectNoise(std=recipe.noise_std),
    "viewmaker": _viewmaker,
    "viewmaker:as_published": lambda recipe, channels: Viewmaker.as_published(
        channels=channels, budget=recipe.viewmaker_budget
    ),
    "mask-viewmaker": partial(_viewmaker, spare_object=True),
    "adversarial": lambda recipe, channels: Adversarial(
        budget=recipe.attack_budget, steps=recipe.attack_steps
    ),
}
"""Every view policy by name; `A+B` is A, then B."""


def build_views(name: str, *, recipe: Recipe | None = None, channels: int = 3) -> Views:
    """The view policy `name`: one of `VIEWS`, or several joined by "+", applied left to right.

    Args:
        name: such as "expert" or "viewmaker+flip".
        recipe: settings of noisy, learned and adversarial views, and the seed of the weights of
            those that learn; by default the default ones. The global random state is left alone.
        channels: C of the images.

    Raises:
        ValueError: an unknown name, or policies that cannot follow one another.

    Example:
        >>> build_views("expert").blur_prob
        0.0
    """
    names, recipe = name.split("+"), recipe or Recipe()
    for part in names:
        check_name("views", part, tuple(VIEWS))
    with seeded(recipe.seed):
        built = [(part, VIEWS[part](recipe, channels)) for part in names]
    return built[0][1] if len(built) == 1 else Chain(built)
