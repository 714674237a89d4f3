"""What a loop of one's own may give a loss by mistake: one line, and no number."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from axes import each_value
from widefield import losses
from widefield.methods.byol import BYOL

TOLD_APART: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "alpha_cl": lambda a, b: losses.alpha_cl(a, b, torch.ones(len(a), len(a))),
    "barlow_twins": partial(losses.barlow_twins, off_diagonal_weight=0.1),
    "dcl": partial(losses.dcl, temperature=0.1),
    "infonce": partial(losses.infonce, temperature=0.1, eps=0.0),
    "vicreg": partial(losses.vicreg, invariance_weight=25.0, variance_weight=25.0, cov_weight=1.0),
}
"""Losses to which others of the batch belong."""
ALL = TOLD_APART | {
    "lejepa": partial(losses.lejepa, directions=torch.eye(4), sigreg_weight=0.1),
    "negative_cosine": losses.negative_cosine,
    "nt_xent": partial(losses.nt_xent, temperature=0.1),
    "one_sided": partial(losses.one_sided, temperature=0.1),
    "prediction_error": losses.prediction_error,
    "spectral_contrastive": losses.spectral_contrastive,
}


@each_value(("name", ALL), ("others", [3, 1]))
def test_views_of_two_batches_are_refused(name: str, others: int) -> None:
    first, second = torch.randn(5, 4), torch.randn(others, 4)
    with pytest.raises(ValueError, match=rf"have shapes \[5, 4\] and \[{others}, 4\]"):
        ALL[name](first, second)
    assert ALL[name](first, first).isfinite()


@pytest.mark.parametrize("name", TOLD_APART)
def test_one_example_has_nothing_to_be_told_apart_from(name: str) -> None:
    one = torch.randn(1, 4)
    with pytest.raises(ValueError, match=r"a batch of 1: .*drop_last=True"):
        ALL[name](one, one)


def test_choices_that_are_misspelt_are_refused() -> None:
    z = torch.eye(3)
    kind: Any = "Gaussian"
    with pytest.raises(ValueError, match="did you mean 'gaussian'"):
        losses.pair_importance(z, z, kind=kind, temperature=1.0)
    with pytest.raises(ValueError, match="directions must be both or one, got 'Both'"):
        BYOL(3, encoder=nn.Identity(), steps=1, directions="Both")
