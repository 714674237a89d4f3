"""Singular values of features, and measures of their rank.

Features h [n, D] are centered first: after a ReLU the mean is by far the largest singular value,
but carries no information on differences of examples. Centered features have at most min(n - 1, D)
nonzero singular values, which bounds every rank below. Only RankMe does not center, as published.
"""

from functools import cached_property

import torch
from torch import Tensor

from widefield.core.scale import unit_rows

# As in `health`: a few times the rounding of bfloat16.
DEAD_STD = 0.01
"""A dimension whose `dimension_std` is below this counts as dead."""


class Spectrum:
    """Features h [n, D] with cached quantities that several diagnostics share.

    Every diagnostic of one set of features takes the features or their `Spectrum`. Pass the
    spectrum to compute several: the decomposition is the expensive part.

    Raises:
        ValueError: anything but finite features [n, D] with n >= 2.

    Example:
        >>> spectrum = Spectrum(torch.cat([torch.eye(3), -torch.eye(3)]))
        >>> round(effective_rank(spectrum), 4), round(participation_ratio(spectrum), 4)
        (3.0, 3.0)
    """

    def __init__(self, h: Tensor) -> None:
        self.features = check_features(h)
        """Float64 [n, D]."""

    def __repr__(self) -> str:
        return f"Spectrum({list(self.features.shape)})"

    @cached_property
    def centered(self) -> Tensor:
        """Singular values of the centered features, descending, float64 [min(n, D)]."""
        return self._above_rounding(_singular_values(self.features - self.features.mean(0)))

    @cached_property
    def uncentered(self) -> Tensor:
        """Singular values of the features without centering, descending, float64 [min(n, D)]."""
        return self._above_rounding(_singular_values(self.features))

    @cached_property
    def unit(self) -> Tensor:
        """The features, each row scaled to length 1, float64 [n, D]."""
        return unit_rows(self.features)

    @cached_property
    def dimension_std(self) -> Tensor:
        """Std of each dimension of `unit`, times sqrt(D), float64 [D]."""
        std: Tensor = self.unit.std(0, correction=0) * self.unit.shape[1] ** 0.5
        return std

    def _above_rounding(self, sigma: Tensor) -> Tensor:
        # Values below float32 resolution are rounding, not a direction.
        return torch.where(sigma > torch.finfo(torch.float32).eps * self.features.norm(), sigma, 0)


def spectrum_of(h: Tensor | Spectrum) -> Spectrum:
    """Return the spectrum of features h [n, D], or h itself if it is one.

    Example:
        >>> spectrum = spectrum_of(torch.eye(4)[:, :2])
        >>> spectrum.features.shape, spectrum_of(spectrum) is spectrum
        (torch.Size([4, 2]), True)
    """
    return h if isinstance(h, Spectrum) else Spectrum(h)


def singular_values(h: Tensor | Spectrum) -> Tensor:
    """Return the singular values of the centered features h, descending, float64 [min(n, D)].

    Values below float32 rounding, 1.2e-7 of |h|, are set to zero as rounding.
    Raises `ValueError` for anything but finite features [n, D] with n >= 2.

    Example:
        >>> singular_values(torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        tensor([4.2426, 1.4142], dtype=torch.float64)
    """
    return spectrum_of(h).centered


def large_singular_values(h: Tensor | Spectrum, alpha: float = 0.1) -> int:
    """Count the singular values of at least `alpha` times the largest; 0 if all rows are equal.

    S-DIET (2025), Figure 1c, uses alpha = 0.1 and does not state whether features are centered;
    here they are.

    Example:
        >>> h = torch.cat([torch.eye(3), -torch.eye(3)])
        >>> large_singular_values(h * torch.tensor([9.0, 1.0, 0.1]))
        2
    """
    sigma = spectrum_of(h).centered
    return int(((sigma >= alpha * sigma[0]) & (sigma > 0)).sum())


def possible_rank(h: Tensor | Spectrum) -> int:
    """Return the maximum rank of centered features, min(n - 1, D).

    Example:
        >>> possible_rank(torch.rand(10, 64)), possible_rank(torch.rand(100, 64))
        (9, 64)
    """
    n, dim = spectrum_of(h).features.shape
    return min(n - 1, dim)


def effective_rank(h: Tensor | Spectrum) -> float:
    """Return exp of the entropy of p_i = sigma_i / sum sigma, in [1, min(n - 1, D)].

    It is 0 for equal rows. Roy and Vetterli (2007), "The effective rank", definition 1, on centered
    features.

    Example:
        >>> round(effective_rank(torch.cat([torch.eye(3), -torch.eye(3)])), 4)
        3.0
    """
    return entropy_rank(spectrum_of(h).centered)


def rankme(h: Tensor | Spectrum) -> float:
    """Return the effective rank of features without centering; a constant column counts.

    Garrido et al. (2023), "RankMe", equation 1, without the 1e-7 inside the logarithm.

    Example:
        >>> round(rankme(torch.ones(10, 4)), 4), round(rankme(torch.eye(4)), 4)
        (1.0, 4.0)
    """
    return entropy_rank(spectrum_of(h).uncentered)


def participation_ratio(h: Tensor | Spectrum) -> float:
    """Return (sum lambda)^2 / sum lambda^2 over covariance eigenvalues lambda; 0 for equal rows.

    It is an effective number of directions in which weak directions count less than in
    `effective_rank`. Gao et al. (2017), "A theory of multineuronal dimensionality".

    Example:
        >>> round(participation_ratio(torch.cat([torch.eye(3), -torch.eye(3)])), 4)
        3.0
    """
    eigenvalues = spectrum_of(h).centered.square()
    if eigenvalues[0] == 0:
        return 0.0
    return float(eigenvalues.sum().square() / eigenvalues.square().sum())


def stable_rank(h: Tensor | Spectrum) -> float:
    """Return |H|_F^2 / |H|_2^2 = sum sigma^2 / max sigma^2 of centered H; 0 for equal rows.

    It is between 1 and the rank, insensitive to weak directions, and determined by the strongest
    one. Rudelson and Vershynin (2007), "Sampling from large matrices", section 1, who call it the
    numerical rank.

    Example:
        >>> round(stable_rank(torch.cat([torch.eye(3), -torch.eye(3)])), 4)
        3.0
    """
    sigma = spectrum_of(h).centered
    return 0.0 if sigma[0] == 0 else float((sigma / sigma[0]).square().sum())


def alpha_req(h: Tensor | Spectrum) -> float:
    """Return the decay a of the covariance eigenvalues, lambda_i ~ i^-a.

    It is fitted by least squares on log-log axes to all eigenvalues above rounding, each with the
    same weight; larger values mean that few directions dominate. The measure is that of Agrawal et
    al. (2022), "alpha-ReQ", section 3, and not their fit, so their values are not comparable.
    Raises `ValueError` where fewer than two directions vary.

    Example:
        >>> h = torch.cat([torch.eye(3), -torch.eye(3)]) / torch.tensor([1, 2, 3])  # sigma ~ 1 / i
        >>> round(alpha_req(h), 4)
        2.0
    """
    sigma = spectrum_of(h).centered
    sigma = sigma[sigma > 0]
    if len(sigma) < 2:
        raise ValueError("features vary along fewer than two directions: no decay can be fitted")
    rank = torch.arange(1, len(sigma) + 1, device=sigma.device).double().log()
    rank = rank - rank.mean()
    return -float(rank @ (2 * sigma.log()) / rank.square().sum())


def dimension_std(h: Tensor | Spectrum) -> Tensor:
    """Return the std of each dimension of h / |h|, times sqrt(D), float64 [D].

    It is 0 for a constant dimension.

    Example:
        >>> dimension_std(torch.tensor([[1.0, 1.0], [-1.0, 1.0]]))
        tensor([1., 0.], dtype=torch.float64)
    """
    return spectrum_of(h).dimension_std


def dead_dimensions(h: Tensor | Spectrum) -> int:
    """Count the dimensions that hardly vary between images: `dimension_std` below 0.01.

    Example:
        >>> dead_dimensions(torch.tensor([[1.0, 1.0], [-1.0, 1.0]]))
        1
    """
    return int((spectrum_of(h).dimension_std < DEAD_STD).sum())


def feature_std(h: Tensor | Spectrum) -> float:
    """Return the mean of `dimension_std`: 1 for isotropic features, 0 for equal rows.

    Chen and He (2021), "Exploring simple Siamese representation learning", section 4.1: zero-mean
    isotropic features give 1. It never exceeds sqrt(1 - |mean of h / |h||^2).

    Example:
        >>> feature_std(torch.tensor([[1.0, 1.0], [-1.0, -1.0]])), feature_std(torch.ones(9, 4))
        (1.0, 0.0)
    """
    return float(spectrum_of(h).dimension_std.mean())


def entropy_rank(sigma: Tensor) -> float:
    """Return exp of the entropy of sigma / sum sigma, sigma descending; 0 if all are zero."""
    if sigma[0] == 0:
        return 0.0
    return float(torch.special.entr(sigma / sigma.sum()).sum().exp())


def check_features(h: Tensor) -> Tensor:
    """Return the features [n, D] in double precision, n >= 2."""
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
