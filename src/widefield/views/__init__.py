"""Augmentations: x[B, C, H, W] -> V views of the same images, windows or sounds, drawn jointly.

Example:
    >>> import torch
    >>> from widefield.views import build_views
    >>> augmentation = build_views("expert")
    >>> first, second = augmentation(torch.rand(8, 3, 32, 32), 2)
    >>> first.shape
    torch.Size([8, 3, 32, 32])
"""

from typing import TYPE_CHECKING

from widefield.core.lazy import lazy_exports

if TYPE_CHECKING:
    from widefield.views.adversarial import Adversarial as Adversarial
    from widefield.views.base import NO_CONTEXT as NO_CONTEXT
    from widefield.views.base import Augmentation as Augmentation
    from widefield.views.base import AugmentContext as AugmentContext
    from widefield.views.base import trained_parameters as trained_parameters
    from widefield.views.chain import Chain as Chain
    from widefield.views.chain import KeepChannels as KeepChannels
    from widefield.views.chain import StackedAugmentation as StackedAugmentation
    from widefield.views.components import view_components as view_components
    from widefield.views.cutout import Cutout as Cutout
    from widefield.views.image import ImageAugmentation as ImageAugmentation
    from widefield.views.noise import Noise as Noise
    from widefield.views.noise import ObjectNoise as ObjectNoise
    from widefield.views.policy import Policy as Policy
    from widefield.views.registry import VIEWS as VIEWS
    from widefield.views.registry import ViewSettings as ViewSettings
    from widefield.views.registry import build_views as build_views
    from widefield.views.signal import ChannelDrop as ChannelDrop
    from widefield.views.signal import Jitter as Jitter
    from widefield.views.signal import Scale as Scale
    from widefield.views.signal import TimeMask as TimeMask
    from widefield.views.simple import Identity as Identity
    from widefield.views.simple import RandomMask as RandomMask
    from widefield.views.simple import Turn as Turn
    from widefield.views.spectrogram import SpecAugment as SpecAugment
    from widefield.views.spectrogram import Spectrogram as Spectrogram
    from widefield.views.viewmaker import Viewmaker as Viewmaker
    from widefield.views.viewmaker import ViewmakerSettings as ViewmakerSettings
    from widefield.views.waveform import PublishedWaveAugment as PublishedWaveAugment
    from widefield.views.waveform import WaveAugment as WaveAugment

__getattr__, __dir__ = lazy_exports(__name__)
