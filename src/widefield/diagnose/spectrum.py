"""How many directions features use: singular values, and numbers that sum them up.

Features h [n, D] are centred first: after a ReLU their mean is by far the largest singular value,
and it says nothing about how examples differ. Centred features have at most min(n - 1, D)
singular values that are not zero; that bounds every rank below. RankMe alone does not centre,
because its authors do not.
"""

import torch
from torch import Tensor
from torch.nn import functional


def singular_values(h: Tensor) -> Tensor:
    """Singular values of the centred features h [n, D], descending, float64 [min(n, D)].

    Values below float32 rounding, 1.2e-7 of |h|, are set to zero: they are no direction.
    Raises `ValueError` for anything but finite features [n, D] with n >= 2.

    Example:
        >>> singular_values(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        tensor([4.2426, 1.4142], dtype=torch.float64)
    """
    h = checked(h)
    return _above_rounding(_singular_values(h - h.mean(0)), h)


def large_singular_values(h: Tensor, alpha: float = 0.1) -> int:
    """How many singular values are at least `alpha` of the largest; 0 where all rows agree.

    S-DIET (2025), Figure 1c, counts them so at alpha = 0.1, and does not say whether the features
    were centred; here they are.
    """
    return count_large(singular_values(h), alpha)


def effective_rank(h: Tensor) -> float:
    """exp of the entropy of p_i = sigma_i / sum sigma, in [1, min(n - 1, D)]; 0 for equal rows.

    Roy and Vetterli (2007), "The effective rank", definition 1, on centred features.

    Example:
        >>> round(effective_rank(torch.cat([torch.eye(3), -torch.eye(3)])), 4)
        3.0
    """
    return entropy_rank(singular_values(h))


def rankme(h: Tensor) -> float:
    """The effective rank of features that are not centred; a constant feature counts as one.

    Garrido et al. (2023), "RankMe", equation 1, without its 1e-7 inside the logarithm.
    """
    h = checked(h)
    return entropy_rank(_above_rounding(_singular_values(h), h))


def participation_ratio(h: Tensor) -> float:
    """(sum lambda)^2 / sum lambda^2 over covariance eigenvalues lambda; 0 for equal rows.

    The number of directions that hold most of the variance: quiet directions count for less
    than in `effective_rank`. Gao et al. (2017), "A theory of multineuronal dimensionality".

    Example:
        >>> round(participation_ratio(torch.cat([torch.eye(3), -torch.eye(3)])), 4)
        3.0
    """
    eigenvalues = singular_values(h).square()
    if eigenvalues[0] == 0:
        return 0.0
    return float(eigenvalues.sum().square() / eigenvalues.square().sum())


def alpha_req(h: Tensor) -> float:
    """Decay a of the covariance eigenvalues, lambda_i ~ i^-a, by least squares on log-log axes.

    About 1 in encoders that transfer well; larger says that few directions dominate. Every
    eigenvalue above rounding enters. Agrawal et al. (2022), "alpha-ReQ", section 3.
    Raises `ValueError` where fewer than two directions vary.
    """
    sigma = singular_values(h)
    sigma = sigma[sigma > 0]
    if len(sigma) < 2:
        raise ValueError("features vary along fewer than two directions: no decay can be fitted")
    rank = torch.arange(1, len(sigma) + 1, device=sigma.device).double().log()
    rank = rank - rank.mean()
    return -float(rank @ (2 * sigma.log()) / rank.square().sum())


def dimension_std(h: Tensor) -> Tensor:
    """Std of each dimension of h / |h|, times sqrt(D), float64 [D]: 0 for a dimension that sleeps.

    Example:
        >>> dimension_std(torch.tensor([[1.0, 1.0], [-1.0, 1.0]]))
        tensor([1., 0.], dtype=torch.float64)
    """
    unit = functional.normalize(checked(h), dim=1)
    std: Tensor = unit.std(0, correction=0) * unit.shape[1] ** 0.5
    return std


def feature_std(h: Tensor) -> float:
    """Mean over dimensions of `dimension_std`: 1 if features are spread out, 0 if collapsed.

    Chen and He (2021), "Exploring simple Siamese representation learning", section 4.1: zero-mean
    isotropic features give 1. It never exceeds sqrt(1 - |mean of h / |h||^2).
    """
    return float(dimension_std(h).mean())


def entropy_rank(sigma: Tensor) -> float:
    """exp of the entropy of descending singular values' shares; 0 where all are zero."""
    if sigma[0] == 0:
        return 0.0
    return float(torch.special.entr(sigma / sigma.sum()).sum().exp())


def count_large(sigma: Tensor, alpha: float) -> int:
    """How many descending singular values are positive and at least `alpha` of the first."""
    return int(((sigma >= alpha * sigma[0]) & (sigma > 0)).sum())


def checked(h: Tensor) -> Tensor:
    """Features [n, D] in double precision, n >= 2.

    Raises:
        ValueError: another shape, or values that are not finite.
    """
    if h.ndim != 2 or len(h) < 2 or h.shape[1] == 0:
        raise ValueError(f"features have shape {list(h.shape)}: give [n, D] with n >= 2")
    if not h.isfinite().all():
        raise ValueError("features contain NaN or infinity: look at the encoder's weights first")
    return h.detach().double()


def _singular_values(h: Tensor) -> Tensor:
    # The eigenvalues of the smaller Gram matrix: several times cheaper than an SVD, and in
    # float64 exact down to 1e-8 of the largest value, below what float32 features can hold.
    gram = h.T @ h if len(h) > h.shape[1] else h @ h.T
    eigenvalues: Tensor = torch.linalg.eigvalsh(gram)
    return eigenvalues.flip(0).clamp(min=0).sqrt()


def _above_rounding(sigma: Tensor, h: Tensor) -> Tensor:
    return torch.where(sigma > torch.finfo(torch.float32).eps * h.norm(), sigma, 0)
