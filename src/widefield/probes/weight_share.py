"""How much of the change of initial weights a run keeps, chosen without labels."""

from bisect import bisect_left

import torch
from torch import nn

from widefield.data import Dataset
from widefield.encoders import averaged
from widefield.probes.explained import explained
from widefield.probes.features import extract

SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.09, 0.06)
"""Shares of the trained weights, the largest first."""
# Chosen on one run of ImageNet weights on photographs, where averages that keep less have a lower
# accuracy from few labels. The study keeping-photographs tests it.
MIN_EXPLAINED = 0.7
"""Held-out R^2 of the initial features that an average has to keep."""
_EXAMPLES = 1000
"""Number of examples whose features are compared: as many as `explained` uses."""
_UNMEASURED = 0.5
"""Share where there are too few examples: the default of Wortsman et al. 2022 (WiSE-FT)."""


def trained_share(
    initial: nn.Module, trained: nn.Module, dataset: Dataset, *, device: torch.device
) -> float:
    """Return the largest share of trained weights whose average keeps the initial features.

    They are kept if a linear map of the features of the average explains `MIN_EXPLAINED` of their
    variance or more, on held-out examples. If no average does, it is the smallest share.
    """
    sample = dataset.subset(dataset.spread_rows(_EXAMPLES)).first_read()
    before = extract(initial, sample.inputs, device=device)

    def keeps(share: float) -> bool:
        after = extract(averaged(initial, trained, share), sample.inputs, device=device)
        found = explained(before, after, groups=sample.groups)
        return found is not None and found.r2 >= MIN_EXPLAINED

    if explained(before, before, groups=sample.groups) is None:
        return _UNMEASURED
    # The further from the initial weights, the less is kept, so that half of the shares are out
    # after each measurement.
    return SHARES[min(bisect_left(SHARES, True, key=keeps), len(SHARES) - 1)]
