"""How many directions tell examples apart, once what changes between views is discounted."""

import torch
from torch import Tensor

from widefield.metrics.spectrum import check_features, entropy_rank

DELTA = 1e-4
"""Share of the mean variance of a dimension that is added to the spread within examples."""


def lidar(views: Tensor, delta: float = DELTA) -> float:
    """Return the effective rank of features [n, q, D] of q views of n examples, by LDA.

    With m_i the mean of example i's views h_iv and m the mean of all,

        Sigma_b = 1/n sum_i (m_i - m)(m_i - m)^T,
        Sigma_w = 1/(n q) sum_iv (h_iv - m_i)(h_iv - m_i)^T + delta v I,

    v the mean variance of a dimension, it is exp of the entropy of l_i / sum l over the
    eigenvalues l of Sigma_w^(-1/2) Sigma_b Sigma_w^(-1/2), in [1, min(n - 1, D)]; where all means
    are equal it is 0. A direction in which views of an example differ as much as examples do
    counts for little here, and for as much as others in `effective_rank`.

    The paper adds a constant delta. As a share of the variance it leaves the number as it is for
    features of another scale.

    Raises:
        ValueError: anything but finite features [n, q, D] with n and q >= 2.

    Example:
        >>> means = torch.cat([torch.eye(3), -torch.eye(3)])
        >>> round(lidar(means[:, None] + 0.1 * means), 4)  # noise alike in all directions
        3.0

    Source: LiDAR (Thilak et al. 2023).
    """
    if views.ndim != 3 or min(views.shape[:2]) < 2:
        raise ValueError(
            f"features of views have shape {list(views.shape)}: give [n, q, D] with n, q >= 2"
        )
    n, q, dim = views.shape
    h = check_features(views.flatten(0, 1))
    rounding = torch.finfo(torch.float32).eps * h.norm()
    h = h - h.mean(0)
    variance = h.square().mean()
    if dim > n * q:  # coordinates in the span of the features: nothing varies outside it
        h = torch.linalg.qr(h.T, mode="r").R.T
    h = h.reshape(n, q, -1)
    means = h.mean(1)
    if means.norm() <= rounding:
        return 0.0
    within = (h - means[:, None]).flatten(0, 1)
    sigma_w = within.T @ within / (n * q)
    sigma_w.diagonal().add_(delta * variance)
    # The eigenvalues are those of A^T A / n, with A = L^-1 M^T, L L^T = Sigma_w and M the means.
    a = torch.linalg.solve_triangular(torch.linalg.cholesky(sigma_w), means.T, upper=False)
    gram = a.T @ a if n < len(a) else a @ a.T
    return entropy_rank(torch.linalg.eigvalsh(gram).flip(0).clamp(min=0))
