"""Augmentations: x[B, C, H, W] in [0, 1] -> V views of the same images, drawn jointly.

Example:
    >>> import torch
    >>> augmentation = build_views("expert")
    >>> first, second = augmentation(torch.rand(8, 3, 32, 32), 2)
    >>> first.shape
    torch.Size([8, 3, 32, 32])
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from torch import nn

from widefield.core.names import check_name
from widefield.core.rng import seeded
from widefield.settings import Settings
from widefield.views.adversarial import Adversarial, AdversarialSettings
from widefield.views.base import NO_CONTEXT, Augmentation, AugmentationSettings, AugmentContext
from widefield.views.chain import Chain
from widefield.views.cutout import Cutout, CutoutSettings
from widefield.views.image import ImageAugmentation
from widefield.views.noise import Noise, NoiseSettings, ObjectNoise
from widefield.views.simple import Identity, RandomMask
from widefield.views.stacked import StackedAugmentation
from widefield.views.viewmaker import PublishedViewmakerSettings, Viewmaker, ViewmakerSettings

__all__ = [
    "NO_CONTEXT",
    "VIEWS",
    "Adversarial",
    "AdversarialSettings",
    "AugmentContext",
    "Augmentation",
    "AugmentationSettings",
    "Chain",
    "Cutout",
    "CutoutSettings",
    "Identity",
    "ImageAugmentation",
    "Noise",
    "NoiseSettings",
    "ObjectNoise",
    "Policy",
    "PublishedViewmakerSettings",
    "RandomMask",
    "StackedAugmentation",
    "ViewSettings",
    "Viewmaker",
    "ViewmakerSettings",
    "build_views",
    "learning_parts",
]


class Policy(NamedTuple):
    """A named augmentation: what it does, its settings, and how they build it."""

    summary: str
    """One sentence that says what it does to images, and its source."""
    settings: type[Settings]
    build: Callable[[Any, int], Augmentation]
    """Function from the settings and the number of channels to the augmentation."""


def _with_settings(summary: str, settings: type[AugmentationSettings]) -> Policy:
    """Return a policy that its settings build."""
    return Policy(summary, settings, settings.build)


def _fixed(summary: str, build: Callable[[], Augmentation]) -> Policy:
    """Return a policy without settings."""
    return Policy(summary, Settings, lambda settings, channels: build())


def _image(summary: str, **arguments: Any) -> Policy:
    """Return a policy that is an `ImageAugmentation` with these arguments."""
    return _fixed(summary, lambda: ImageAugmentation(**arguments))


def _stacked() -> Augmentation:
    weaker = ImageAugmentation(
        crop_scale=(0.75, 1.0),
        flip_prob=0.0,
        grayscale_prob=0.0,
        blur_sigma=(0.1, 2.0),
        blur_prob=0.5,
    )
    return StackedAugmentation(image=ImageAugmentation(crop_scale=(0.08, 1.0)), rest=weaker)


VIEWS: dict[str, Policy] = {
    "expert": _image(
        "Crop 8 to 100 % of the area, mirror, jitter and remove colour (S-DIET 2025, appendix C).",
        crop_scale=(0.08, 1.0),
    ),
    "expert:feature-dropout": _image(
        "Crop 20 to 100 % of the area, mirror, jitter and remove colour, blur as Pillow does "
        "(Feature Dropout, Tamkin et al. 2022).",
        crop_scale=(0.2, 1.0),
        blur_sigma=(0.1, 2.0),
        blur_prob=0.5,
        blur="pillow",
    ),
    "expert:stacked": _fixed(
        "Apply expert to the image; crop 75 to 100 %, jitter and blur a fourth channel that is "
        "stacked on it (S-DIET 2025, appendix C).",
        _stacked,
    ),
    # Our own, for features that a hard crop or a mirror destroys.
    "gentle": _image(
        "Crop 70 to 100 % of the area, jitter and remove colour; nothing is mirrored.",
        crop_scale=(0.7, 1.0),
        flip_prob=0.0,
    ),
    "none": _fixed("Return the image itself.", Identity),
    "crop": _image(
        "Crop 8 to 100 % of the area, and nothing else.",
        crop_scale=(0.08, 1.0),
        flip_prob=0.0,
        jitter_prob=0.0,
        grayscale_prob=0.0,
    ),
    "flip": _image(
        "Mirror each image left to right with probability 1/2, and nothing else.",
        crop_scale=None,
        jitter_prob=0.0,
        grayscale_prob=0.0,
    ),
    "colour": _image("Jitter and remove colour, and nothing else.", crop_scale=None, flip_prob=0.0),
    "random-mask": _fixed(
        "Double a random half of an image's numbers and drop the others; the second view is the "
        "complement, for objectives of two views (Wen & Li 2021, definition 2.3).",
        RandomMask,
    ),
    "cutout": _with_settings("Cover a square with grey (DeVries & Taylor 2017).", CutoutSettings),
    "noise": _with_settings("Add Gaussian noise to every pixel.", NoiseSettings),
    "noise:object": Policy(
        "Add Gaussian noise to the planted object alone (Feature Dropout 2022, section 4).",
        NoiseSettings,
        lambda settings, channels: ObjectNoise(std=settings.noise_std),
    ),
    "viewmaker": _with_settings(
        "Let a network change the image so as to raise the loss, on a budget "
        "(Feature Dropout 2022).",
        ViewmakerSettings,
    ),
    "viewmaker:published": _with_settings(
        "Change the image by the viewmaker as its authors released it: views leave [0, 1] and "
        "fall a little short of the budget.",
        PublishedViewmakerSettings,
    ),
    "mask-viewmaker": Policy(
        "Let a viewmaker change all but the planted object (Feature Dropout 2022, appendix C.1).",
        ViewmakerSettings,
        lambda settings, channels: settings.build(channels, spare_object=True),
    ),
    "adversarial": _with_settings(
        "Attack each image by projected gradient ascent on the loss "
        "(Kim et al. 2020, as in Figure 1 of Wen & Li 2021).",
        AdversarialSettings,
    ),
}
"""Every policy by name; `A+B` is A, then B."""


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """One view policy, or several that are applied one after the other, with their settings.

    Example:
        >>> settings = ViewSettings.named("noise+flip").changed({"noise_std": 0.05})
        >>> settings.names, settings.flat()
        ('noise+flip', {'noise_std': 0.05})
    """

    policies: tuple[tuple[str, Settings], ...] = (("expert", Settings()),)
    """Name and settings of each policy, in the order in which they are applied."""

    @classmethod
    def named(cls, names: str) -> Self:
        """Return the policies `names`, such as "viewmaker+flip", with their defaults.

        Raises:
            ValueError: an unknown name; the message gives the nearest one.
        """
        parts = str(names).split("+")
        for name in parts:
            check_name("views", name, VIEWS)
        return cls(policies=tuple((name, VIEWS[name].settings()) for name in parts))

    @property
    def names(self) -> str:
        """Names of the policies, joined by "+"."""
        return "+".join(name for name, _ in self.policies)

    def flat(self) -> dict[str, Any]:
        """Return every setting under its flat name."""
        values: dict[str, Any] = {}
        for _, settings in self.policies:
            values |= settings.flat()
        return values

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with those of `values` whose names are settings of these policies."""
        policies = tuple((name, settings.changed(values)) for name, settings in self.policies)
        return replace(self, policies=policies)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain values for `run.yaml`."""
        return [{"name": name, **settings.to_dict()} for name, settings in self.policies]

    @classmethod
    def from_dict(cls, values: list[dict[str, Any]]) -> Self:
        """Build what `to_dict` wrote.

        Raises:
            ValueError: a key is unknown or missing.
        """
        policies = []
        if not isinstance(values, list) or not values:
            raise ValueError(f"views must be a list of policies, got {values!r}")
        for value in values:
            rest = dict(value)
            name = rest.pop("name")
            check_name("views", name, VIEWS)
            policies.append((name, VIEWS[name].settings.from_dict(rest)))
        return cls(policies=tuple(policies))

    def build(self, *, channels: int = 3, seed: int = 0) -> Augmentation:
        """Build the augmentation; several policies become a chain, from left to right.

        Args:
            channels: C of the images.
            seed: seed of the weights of views that learn; the global random state is left alone.

        Raises:
            ValueError: policies that cannot follow one another.
        """
        with seeded(seed):
            built = [(name, VIEWS[name].build(s, channels)) for name, s in self.policies]
        return built[0][1] if len(built) == 1 else Chain(built)


def build_views(names: str, *, channels: int = 3, seed: int = 0, **settings: Any) -> Augmentation:
    """Build the augmentation `names`: one of `VIEWS`, or several joined by "+".

    Args:
        names: policies such as "expert" or "viewmaker+flip", applied from left to right.
        channels: C of the images.
        seed: seed of the weights of views that learn; the global random state is left alone.
        **settings: settings of these policies to change, such as `noise_std`.

    Raises:
        ValueError: an unknown name, a setting that these policies lack, or policies that cannot
            follow one another.

    Example:
        >>> build_views("noise", noise_std=0.05).std
        0.05
    """
    chosen = ViewSettings.named(names)
    for name in settings:
        check_name(f"setting of views {names!r}", name, chosen.flat())
    return chosen.changed(settings).build(channels=channels, seed=seed)


def learning_parts(views: Augmentation) -> list[tuple[nn.Parameter, float]]:
    """Return the parameters of `views` that learn, each with its learning rate."""
    parts = [part for part in views.modules() if isinstance(part, Viewmaker)]
    return [(p, part.lr) for part in parts for p in part.parameters()]
