"""Losses of features and the rows of their batch."""

from typing import Annotated

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Interval
from torch import Tensor

from widefield.core.batch import ContrastedRows, Rows, checked
from widefield.core.precision import full_precision


@checked
@full_precision
def batch_cross_entropy(
    z: Rows,
    rows: Rows,
    *,
    scale: Annotated[float, Gt(0)],
    smoothing: Annotated[float, Interval(ge=0, lt=1)],
) -> Tensor:
    """Return the cross-entropy of instance classification in a batch, z [b, m] and rows [b, m].

    With z_i the feature, normalized as published, and w_j the row of example j,

        loss = -1/b sum_i sum_j q_ij log softmax_j(scale z_i . w_j),
        q_ij = (1 - smoothing) [i = j] + smoothing / b.

    Example:
        >>> far_apart = 100 * torch.eye(4)
        >>> float(batch_cross_entropy(torch.eye(4), far_apart, scale=1.0, smoothing=0.0))
        0.0

    Source: S-DIET (2025), section 5.2.1, equation 5; label smoothing as in DIET (2023).
    """
    target = torch.arange(len(z), device=z.device)
    return F.cross_entropy(scale * z @ rows.T, target, label_smoothing=smoothing)


@checked
@full_precision
def decoupled_contrast(
    z: ContrastedRows,
    rows: ContrastedRows,
    *,
    scale: Annotated[float, Gt(0)],
    normalize: bool = True,
) -> Tensor:
    """Return the decoupled contrastive loss of z [b, m] with rows [b, m].

    With z_i and w_j normalized, or w_j as it is without `normalize`,

        loss = 1/b sum_i ( -scale z_i . w_i
                           + log sum_{j != i} (exp(scale z_i . w_j) + exp(scale z_i . z_j)) ).

    Three things differ from `batch_cross_entropy`. An example is contrasted with the current
    features of the others too, not only with their rows. Its own row is left out of the sum, so
    that easy examples keep a gradient. Rows are normalized too, so that `scale` alone sets the
    weight of the nearest examples.

    The rows may be features of a second view.

    Example:
        >>> z = torch.eye(4)
        >>> right, wrong = (decoupled_contrast(z, rows, scale=10.0) for rows in (z, z.roll(1, 0)))
        >>> bool(right < wrong)
        True

    Source: ours; leaving the positive out is Yeh et al. (2022), *Decoupled contrastive learning*.
    """
    if normalize:
        rows = F.normalize(rows, dim=1)
    row_logits, feature_logits = scale * z @ rows.T, scale * z @ z.T
    is_positive = torch.eye(len(z), dtype=torch.bool, device=z.device)
    others = torch.cat([row_logits, feature_logits], dim=1)
    others = others.masked_fill(is_positive.repeat(1, 2), float("-inf"))
    return (others.logsumexp(1) - row_logits.diagonal()).mean()


@checked
@full_precision
def view_contrast(
    z: ContrastedRows,
    rows: ContrastedRows,
    second: ContrastedRows,
    *,
    scale: Annotated[float, Gt(0)],
    cross_entropy_weight: Annotated[float, Ge(0)],
    smoothing: Annotated[float, Interval(ge=0, lt=1)],
) -> Tensor:
    """Return the contrastive loss of two views plus S-DIET's cross-entropy with the rows.

    With normalized features z [b, m] of a view and v [b, m] of the second one, and rows w [b, m],

        loss = decoupled_contrast(z, v; scale)
               + cross_entropy_weight batch_cross_entropy(z, w; 1, smoothing).

    The first term has a gradient from an example's first visit on, and keeps features that the
    second term suppresses; the second term improves the accuracy of other features.

    Example:
        >>> z = torch.eye(4)
        >>> both = view_contrast(z, z, z, scale=10.0, cross_entropy_weight=2.0, smoothing=0.0)
        >>> first = decoupled_contrast(z, z, scale=10.0)
        >>> bool(both == first + 2 * batch_cross_entropy(z, z, scale=1.0, smoothing=0.0))
        True

    Source: ours; its second term is S-DIET (2025), section 5.
    """
    contrast = decoupled_contrast(z, second, scale=scale)
    cross_entropy = batch_cross_entropy(z, rows, scale=1.0, smoothing=smoothing)
    return contrast + cross_entropy_weight * cross_entropy
