"""Type of the entries of `VIEWS`, and base class of their settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from widefield.core.settings import Settings
from widefield.views.base import Augmentation

Stage = Literal["image", "picture", "spectrogram", "samples", "any"]
"""Input: images only, images and spectrograms, spectrograms only, windows and waveforms, or any."""


@dataclass(frozen=True, kw_only=True)
class PolicySettings(Settings):
    """Settings of a view policy; this base class has none."""

    argument_of: ClassVar[Mapping[str, str]] = {}
    """Field -> argument of the augmentation that it is."""

    def arguments(self, channels: int) -> dict[str, Any]:
        """Return the arguments of the augmentation, for images of `channels` channels."""
        return {argument: getattr(self, name) for name, argument in self.argument_of.items()}


class Policy(NamedTuple):
    """A named augmentation with its settings.

    Example:
        >>> from widefield.views import VIEWS
        >>> VIEWS["cutout"].stage
        'picture'
    """

    summary: str
    """One sentence on its effect and its source."""
    view: Callable[..., Augmentation]
    """The class, or a function that builds one, with the arguments that are no settings."""
    settings: type[PolicySettings] = PolicySettings
    """Its settings, whose `arguments` are the other arguments."""
    stage: Stage = "image"

    def build(self, settings: PolicySettings, channels: int) -> Augmentation:
        """Build the augmentation for images of `channels` channels."""
        return self.view(**settings.arguments(channels))
