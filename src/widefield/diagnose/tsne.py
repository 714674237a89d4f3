"""A map of features in the plane: t-SNE."""

import torch
from torch import Tensor

from widefield.diagnose.spectrum import checked


def tsne_map(h: Tensor, *, seed: int = 0) -> Tensor:
    """Return places in the plane, float32 [n, 2] on the CPU, that keep the neighbours of h [n, D].

    It is scikit-learn's t-SNE from a random start, perplexity 30 or a third of the examples.
    Distances between far groups mean nothing. Van der Maaten and Hinton (2008). Raises `ValueError`
    for features that are not finite, and for fewer than 4 examples.

    Example:
        >>> tsne_map(torch.randn(20, 5, generator=torch.Generator().manual_seed(0))).shape
        torch.Size([20, 2])
    """
    from sklearn.manifold import TSNE

    h = checked(h)
    if len(h) < 4:
        raise ValueError(f"a map needs 4 examples at least, got {len(h)}")
    plane = TSNE(perplexity=min(30.0, (len(h) - 1) / 3), init="random", random_state=seed)
    return torch.from_numpy(plane.fit_transform(h.float().cpu().numpy()))
