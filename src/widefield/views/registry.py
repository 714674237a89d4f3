"""View policies by name, their settings, and the augmentations built from them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, Unpack

from widefield.core.logmel import FrontEnd
from widefield.core.names import check_name
from widefield.core.rng import seeded
from widefield.core.types import Kind
from widefield.views import signal
from widefield.views.adversarial import Adversarial, AdversarialSettings
from widefield.views.arguments import ViewArguments
from widefield.views.base import Augmentation
from widefield.views.chain import Chain, KeepChannels, StackedAugmentation
from widefield.views.cutout import Cutout, CutoutSettings
from widefield.views.image import ImageAugmentation
from widefield.views.noise import Noise, NoiseSettings, ObjectNoise
from widefield.views.policy import Policy, PolicySettings
from widefield.views.simple import Identity, RandomMask, Turn
from widefield.views.spectrogram import SpecAugment, Spectrogram
from widefield.views.viewmaker import PublishedViewmakerSettings, Viewmaker, ViewmakerSettings
from widefield.views.waveform import PublishedWaveAugment, WaveAugment

SIGNAL_POLICIES: dict[str, dict[Kind, tuple[str, ...]]] = {
    "expert": {"windows": ("jitter", "scale", "time-mask"), "sounds": ("waveaug", "specaug")},
    "gentle": {"windows": ("jitter", "time-mask"), "sounds": ("time-mask", "specaug")},
}
"""Equivalents of image policies for other kinds of examples."""


def turned_views(**arguments: Any) -> Augmentation:
    """Return views that turn images, then change them as `ImageAugmentation` does."""
    return Chain([("turn", Turn()), ("image", ImageAugmentation(flip_prob=0.0, **arguments))])


def stacked_views() -> Augmentation:
    """Return the views of images with a digit stacked on them (S-DIET 2025, appendix C)."""
    rest = ImageAugmentation(
        crop_scale=(0.75, 1.0),
        flip_prob=0.0,
        grayscale_prob=0.0,
        blur_sigma=(0.1, 2.0),
        blur_prob=0.5,
    )
    return StackedAugmentation(image=ImageAugmentation(crop_scale=(0.08, 1.0)), rest=rest)


VIEWS: dict[str, Policy] = {
    "expert": Policy(
        "Crop 8 to 100 % of the area, mirror, jitter and remove color (S-DIET 2025, appendix C); "
        "of windows it is jitter+scale+time-mask, of sounds waveaug+specaug.",
        partial(ImageAugmentation, crop_scale=(0.08, 1.0)),
    ),
    "expert:feature-dropout": Policy(
        "Crop 20 to 100 % of the area, mirror, jitter and remove color, blur as Pillow does "
        "(Feature Dropout, Tamkin et al. 2022).",
        partial(
            ImageAugmentation,
            crop_scale=(0.2, 1.0),
            blur_sigma=(0.1, 2.0),
            blur_prob=0.5,
            blur="pillow",
        ),
    ),
    "expert:stacked": Policy(
        "Apply expert to the image; crop 75 to 100 %, jitter and blur a fourth channel that is "
        "stacked on it (S-DIET 2025, appendix C).",
        stacked_views,
    ),
    # For features that strong crops or mirroring destroy; not from a paper.
    "gentle": Policy(
        "Crop 70 to 100 % of the area, jitter and remove color, without mirroring; of windows it "
        "is jitter+time-mask, of sounds time-mask+specaug.",
        partial(ImageAugmentation, crop_scale=(0.7, 1.0), flip_prob=0.0),
    ),
    # Between expert and gentle, as measured in docs/studies.md, "views".
    "moderate": Policy(
        "Crop 40 to 100 % of the area, jitter and remove color, without mirroring.",
        partial(ImageAugmentation, crop_scale=(0.4, 1.0), flip_prob=0.0),
    ),
    # For kinds of images whose classes expert would confuse; not from a paper.
    "microscopy": Policy(
        "Turn by a multiple of 90 degrees, mirror, crop 50 to 100 % of the area, and change "
        "brightness, contrast and color a little, so that stains stay what they are.",
        partial(
            turned_views, crop_scale=(0.5, 1.0), jitter=(0.05, 0.1, 0.1, 0.02), grayscale_prob=0.0
        ),
    ),
    "xray": Policy(
        "Crop 60 to 100 % of the area and change brightness and contrast, without mirroring, as "
        "left and right differ.",
        partial(
            ImageAugmentation,
            crop_scale=(0.6, 1.0),
            flip_prob=0.0,
            jitter=(0.2, 0.2, 0.0, 0.0),
            grayscale_prob=0.0,
        ),
    ),
    "satellite": Policy(
        "Turn by a multiple of 90 degrees, mirror, crop 40 to 100 % of the area, and change "
        "brightness, contrast and color somewhat.",
        partial(
            turned_views, crop_scale=(0.4, 1.0), jitter=(0.2, 0.2, 0.2, 0.05), grayscale_prob=0.0
        ),
    ),
    "documents": Policy(
        "Crop 80 to 100 % of the area at nearly its shape, change brightness and contrast, and "
        "remove color, without mirroring and turning, so that text can be read.",
        partial(
            ImageAugmentation,
            crop_scale=(0.8, 1.0),
            crop_ratio=(0.9, 1 / 0.9),
            flip_prob=0.0,
            jitter=(0.3, 0.3, 0.2, 0.0),
        ),
    ),
    "turn": Policy(
        "Turn by a random multiple of 90 degrees, mirror with probability 1/2, and nothing else.",
        Turn,
    ),
    "none": Policy("Return the example itself.", Identity, stage="any"),
    "crop": Policy(
        "Crop 8 to 100 % of the area, and nothing else.",
        partial(
            ImageAugmentation,
            crop_scale=(0.08, 1.0),
            flip_prob=0.0,
            jitter_prob=0.0,
            grayscale_prob=0.0,
        ),
    ),
    "flip": Policy(
        "Mirror each image left to right with probability 1/2, and nothing else.",
        partial(ImageAugmentation, crop_scale=None, jitter_prob=0.0, grayscale_prob=0.0),
    ),
    "color": Policy(
        "Jitter and remove color, and nothing else.",
        partial(ImageAugmentation, crop_scale=None, flip_prob=0.0),
    ),
    "random-mask": Policy(
        "Double a random half of an image's numbers and drop the others; the second view is the "
        "complement, for objectives of two views (Wen & Li 2021, definition 2.3).",
        RandomMask,
        stage="picture",
    ),
    "cutout": Policy(
        "Cover a square with gray (DeVries & Taylor 2017).", Cutout, CutoutSettings, stage="picture"
    ),
    "noise": Policy("Add Gaussian noise to every pixel.", Noise, NoiseSettings, stage="picture"),
    "noise:object": Policy(
        "Add Gaussian noise to the planted object alone (Feature Dropout 2022, section 4).",
        ObjectNoise,
        NoiseSettings,
    ),
    "viewmaker": Policy(
        "Let a network change the image so as to raise the loss, on a budget "
        "(Feature Dropout 2022).",
        Viewmaker,
        ViewmakerSettings,
        stage="picture",
    ),
    "viewmaker:published": Policy(
        "Change the image by the viewmaker as its authors released it: views leave [0, 1] and "
        "fall a little short of the budget.",
        partial(Viewmaker, shape="sphere", clamp=False, slack=1e-4),
        PublishedViewmakerSettings,
        stage="picture",
    ),
    "mask-viewmaker": Policy(
        "Let a viewmaker change all but the planted object (Feature Dropout 2022, appendix C.1).",
        partial(Viewmaker, exclude_object=True),
        ViewmakerSettings,
    ),
    "adversarial": Policy(
        "Attack each image by projected gradient ascent on the loss "
        "(Kim et al. 2020, as in Figure 1 of Wen & Li 2021).",
        Adversarial,
        AdversarialSettings,
        stage="picture",
    ),
    "jitter": Policy(
        "Add Gaussian noise to windows or waveforms, relative to each channel's deviation.",
        signal.Jitter,
        signal.JitterSettings,
        stage="samples",
    ),
    "scale": Policy(
        "Multiply what differs from the mean of each channel of a signal by a random gain.",
        signal.Scale,
        signal.ScaleSettings,
        stage="samples",
    ),
    "time-mask": Policy(
        "Cover a random run of time with each channel's mean.",
        signal.TimeMask,
        signal.TimeMaskSettings,
        stage="samples",
    ),
    "channel-drop": Policy(
        "Replace random channels of a window by their mean.",
        signal.ChannelDrop,
        signal.ChannelDropSettings,
        stage="samples",
    ),
    "specaug": Policy(
        "Cover up to 30 % of a spectrogram's rows and of its columns with its mean "
        "(SpecAugment, Park et al. 2019).",
        partial(SpecAugment, share=0.3),
        stage="spectrogram",
    ),
    "specaug:published": Policy(
        "Cover up to 40 of 64 rows and columns, then add noise of a quarter of the data's "
        "deviation (Feature Dropout 2022).",
        partial(SpecAugment, share=40 / 64, noise=0.25),
        stage="spectrogram",
    ),
    "waveaug": Policy(
        "Change a waveform's pitch and speed, add an echo or noise, take out a band and a run of "
        "time.",
        WaveAugment,
        stage="samples",
    ),
    "waveaug:published": Policy(
        "Keep a run of 8 to 100 % of a waveform, with noise on its spectrum (Feature Dropout "
        "2022).",
        PublishedWaveAugment,
        stage="samples",
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

    policies: tuple[tuple[str, PolicySettings], ...] = (("expert", PolicySettings()),)
    """Name and settings of each policy, in the order in which they are applied."""

    @classmethod
    def named(cls, names: str) -> Self:
        """Return the policies `names`, such as "viewmaker+flip", with default settings.

        Raises:
            ValueError: an unknown name; the message has the closest known one.
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
        return {k: v for _, settings in self.policies for k, v in settings.flat().items()}

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with the `values` that are settings of these policies."""
        return replace(self, policies=tuple((n, s.changed(values)) for n, s in self.policies))

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain values for `run.yaml`."""
        return [{"name": name, **settings.to_dict()} for name, settings in self.policies]

    @classmethod
    def from_dict(cls, values: list[dict[str, Any]]) -> Self:
        """Build the settings from the result of `to_dict`.

        Raises:
            ValueError: a key is unknown or missing.
        """
        policies = []
        if not isinstance(values, list) or not values:
            raise ValueError(f"views must be a list of policies, got {values!r}")
        for value in values:
            if not isinstance(value, dict) or "name" not in value:
                raise ValueError(f"views must each have a name, as {{name: expert}}, got {value!r}")
            rest = dict(value)
            name = rest.pop("name")
            check_name("views", name, VIEWS)
            policies.append((name, VIEWS[name].settings.from_dict(rest)))
        return cls(policies=tuple(policies))

    def check_kind(self, kind: Kind) -> None:
        """Check that no policy is for sounds or windows alone, if the examples are images.

        Raises:
            ValueError: one is.
        """
        others = [n for n, _ in self.policies if VIEWS[n].stage in ("samples", "spectrogram")]
        if kind == "images" and others:
            raise ValueError(f"views {others[0]!r} are for sounds or windows: leave them out")

    def build(
        self,
        *,
        channels: int = 3,
        kept: int = 0,
        seed: int = 0,
        kind: Kind = "images",
        front_end: FrontEnd | None = None,
    ) -> Augmentation:
        """Build the augmentation; several policies become a chain, from left to right.

        For sounds with a spectrogram, policies of the waveform come first, then the spectrogram,
        then the policies of images and spectrograms.

        Args:
            channels: C of the images.
            kept: number of the last channels that the views leave as they are.
            seed: seed of the weights of learned views; the global random state is not changed.
            kind: kind of the examples.
            front_end: settings of the spectrogram of the encoder; None without one.

        Raises:
            ValueError: policies that cannot follow one another, or that do not change such
                examples.
        """
        policies = self.policies if kind == "images" else _signal_policies(self, kind, front_end)
        with seeded(seed):
            parts = [(name, VIEWS[name].build(s, channels - kept)) for name, s in policies]
        if front_end is None:
            return KeepChannels(_chain(parts), kept) if kept else _chain(parts)
        samples = [(n, part) for n, part in parts if VIEWS[n].stage == "samples"]
        images = [(n, part) for n, part in parts if VIEWS[n].stage != "samples"]
        signal_part = _chain([*samples, ("spectrogram", Spectrogram(front_end))])
        return _chain([("sounds", signal_part), *images])


def _chain(parts: list[tuple[str, Augmentation]]) -> Augmentation:
    return parts[0][1] if len(parts) == 1 else Chain(parts)


def _signal_policies(
    views: ViewSettings, kind: Kind, front_end: FrontEnd | None
) -> list[tuple[str, PolicySettings]]:
    """Return the policies for windows or sounds, with `expert` and `gentle` expanded."""
    stages = (
        {"samples", "any"} if front_end is None else {"samples", "picture", "spectrogram", "any"}
    )
    policies: list[tuple[str, PolicySettings]] = []
    for name, settings in views.policies:
        if name in SIGNAL_POLICIES:
            names = [n for n in SIGNAL_POLICIES[name][kind] if VIEWS[n].stage in stages]
            policies += [(n, VIEWS[n].settings()) for n in names]
        elif VIEWS[name].stage in stages:
            policies.append((name, settings))
        else:
            available = [other for other, policy in VIEWS.items() if policy.stage in stages]
            raise ValueError(
                f"views {name!r} do not change {kind} as this encoder sees them; "
                f"choose from {', '.join(available)}"
            )
    return policies


def build_views(
    names: str, *, channels: int = 3, seed: int = 0, **settings: Unpack[ViewArguments]
) -> Augmentation:
    """Build the augmentation `names`: one of `VIEWS`, or several joined by "+".

    Args:
        names: policies such as "expert" or "viewmaker+flip", applied from left to right.
        channels: C of the images.
        seed: seed of the weights of learned views; the global random state is not changed.
        **settings: settings of these policies, such as `noise_std`.

    Raises:
        ValueError: an unknown name, a setting that these policies lack, or policies that cannot
            follow one another.

    Example:
        >>> build_views("noise", noise_std=0.05).std
        0.05
    """
    views = ViewSettings.named(names)
    for name in settings:
        check_name(f"setting of views {names!r}", name, views.flat())
    return views.changed(settings).build(channels=channels, seed=seed)
