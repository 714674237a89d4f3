"""Components of views: every operation of a policy alone, with the settings of the policy."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from widefield.views.base import Augmentation
from widefield.views.blur import pillow_blur
from widefield.views.chain import Chain, StackedAugmentation
from widefield.views.image import ImageAugmentation
from widefield.views.simple import Identity
from widefield.views.spectrogram import Spectrogram

_OFF: dict[str, tuple[str, Any]] = {
    "crop": ("crop_scale", None),
    "flip": ("flip_prob", 0.0),
    "jitter": ("jitter_prob", 0.0),
    "grayscale": ("grayscale_prob", 0.0),
    "blur": ("blur_prob", 0.0),
}
"""Operation on images -> the argument that disables it, and its value then."""


def view_components(name: str, views: Augmentation) -> dict[str, Augmentation]:
    """Return the components of `views`, by name, in the order in which they are applied.

    Components of images are crop, flip, jitter, grayscale and blur, those that the policy uses; of
    chains, those of each part. Another policy is one component. A spectrogram is applied with every
    component: the encoder has no other input.

    Args:
        name: name of the policy.
        views: its augmentation; components share its learned parameters.

    Example:
        >>> from widefield.views import build_views
        >>> list(view_components("gentle+noise", build_views("gentle+noise")))
        ['crop', 'jitter', 'grayscale', 'noise']
    """
    operations = list(_operations(name, views))
    parts: dict[str, Augmentation] = {}
    uses = Counter[str]()
    for operation, part in operations:
        if not isinstance(part, Spectrogram):
            uses[operation] += 1  # two policies of a chain may both crop: the second is "crop 2"
            key = operation if uses[operation] == 1 else f"{operation} {uses[operation]}"
            kept = [(n, p) for n, p in operations if p is part or isinstance(p, Spectrogram)]
            parts[key] = part if len(kept) == 1 else Chain(kept)
    return parts


def _operations(name: str, views: Augmentation) -> Iterator[tuple[str, Augmentation]]:
    """Yield the operations of `views` in order, with the spectrogram of a chain."""
    if isinstance(views, Chain):
        for part_name, part in zip(views.names, views.parts, strict=True):
            assert isinstance(part, Augmentation)
            yield from _operations(part_name, part)
    elif isinstance(views, StackedAugmentation):
        unchanged = ImageAugmentation(**dict(_OFF.values()))
        for operation, part in _image_operations(views.image):
            yield operation, StackedAugmentation(image=part, rest=unchanged)
        for operation, part in _image_operations(views.rest):
            yield f"stacked {operation}", StackedAugmentation(image=unchanged, rest=part)
    elif isinstance(views, ImageAugmentation):
        yield from _image_operations(views)
    elif not isinstance(views, Identity):
        yield name, views


def _image_operations(views: ImageAugmentation) -> Iterator[tuple[str, ImageAugmentation]]:
    """Yield each operation that `views` use, with all others disabled."""
    settings = {
        "crop_scale": views.crop_scale,
        "crop_ratio": views.crop_ratio,
        "flip_prob": views.flip_prob,
        "jitter": views.jitter,
        "jitter_prob": views.jitter_prob,
        "grayscale_prob": views.grayscale_prob,
        "blur_sigma": views.blur_sigma,
        "blur_prob": views.blur_prob,
        "blur": "pillow" if views.blur is pillow_blur else "torchvision",
    }
    for operation, (argument, off) in _OFF.items():
        if settings[argument] != off:
            single = dict(_OFF.values()) | {argument: settings[argument]}
            yield operation, ImageAugmentation(**(settings | single))
