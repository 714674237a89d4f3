"""How much of the change of initial weights a run keeps, chosen without labels."""

import torch

from widefield.data import Dataset
from widefield.encoders import Encoder, averaged
from widefield.probes.explained import explained
from widefield.probes.features import extract

SHARES = (1.0, 0.75, 0.5, 0.25, 0.125, 0.0625)
"""Shares of the trained weights, the largest first."""
# Chosen on ImageNet weights and photographs, where averages below it have a lower accuracy from few
# labels, and confirmed by the study keeping-starts.
MIN_EXPLAINED = 0.7
"""Held-out R^2 of the initial features that an average has to keep."""
_EXAMPLES = 1000
"""As many as `explained` uses."""


def trained_share(
    initial: Encoder, trained: Encoder, dataset: Dataset, *, device: torch.device
) -> float:
    """Return the largest share of trained weights whose average keeps the initial features.

    They are kept if a linear map of the features of the average explains a share of `MIN_EXPLAINED`
    of their variance, on held-out examples. If no average does, it is the smallest share. Without
    enough examples to measure it, it is a half, the default of Wortsman et al. (2022).
    """
    sample = dataset.subset(dataset.spread_rows(_EXAMPLES)).first_read()
    before = extract(initial.to(device), sample.inputs)
    for share in SHARES:
        encoder = averaged(initial, trained, share).to(device)
        kept = explained(before, extract(encoder, sample.inputs), groups=sample.groups)
        if kept is None:
            return 0.5
        if kept.r2 >= MIN_EXPLAINED:
            return share
    return SHARES[-1]
