"""Views of spectrograms: log-mel images of waveforms, and SpecAugment."""

from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Generator

from widefield.core.batch import checked
from widefield.core.logmel import FrontEnd, LogMel
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.signal import normal, run


class Spectrogram(Augmentation):
    """Log-mel images [B, 1, bands, frames] of waveforms [B, 1, 1, T], as part of a chain.

    Args:
        front_end: settings of the spectrogram, those of the encoder that sees the views.

    Example:
        >>> from widefield.core.logmel import FrontEnd
        >>> (view,) = Spectrogram(FrontEnd(rate=8000, samples=8000))(torch.zeros(2, 1, 1, 8000), 1)
        >>> view.shape
        torch.Size([2, 1, 64, 64])
    """

    pixel_aligned = False
    any_input_range = True

    def __init__(self, front_end: FrontEnd) -> None:
        super().__init__()
        self.log_mel = LogMel(front_end)

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Return the spectrogram of each waveform."""
        return list(self.log_mel(torch.cat(views)).chunk(len(views)))


class SpecAugment(Augmentation):
    """Views in which a run of rows and a run of columns are replaced by the mean of the image.

    Args:
        share: maximum width of either run, as a share of the side; widths are uniform.
        noise: standard deviation of added noise, as a share of that of the batch.

    Example:
        >>> x = torch.rand(2, 1, 64, 64)
        >>> (view,) = SpecAugment(share=0.3)(x, 1, torch.Generator().manual_seed(0))
        >>> bool((view != x).any())
        True

    Source: Park et al. (2019), without time warping; Feature Dropout (2022) as published: runs of
    up to 40 of 64 rows and columns, then noise of a quarter of the data's deviation.
    """

    @checked
    def __init__(
        self, *, share: Annotated[float, Ge(0), Le(1)], noise: Annotated[float, Ge(0)] = 0.0
    ) -> None:
        super().__init__()
        self.share, self.noise = share, noise
        if noise:
            self.value_range = (-torch.inf, torch.inf)

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Mask each of `views` [B, C, bands, frames]."""
        changed = []
        for x in views:
            covered = run(x, self.share, generator, dim=2) | run(x, self.share, generator, dim=3)
            view = torch.where(covered, x.mean((1, 2, 3), keepdim=True), x)
            if self.noise:
                view = view + self.noise * x.detach().std() * normal(x.shape, x, generator)
            changed.append(view)
        return changed
