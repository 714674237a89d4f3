"""Which way up is an image? What a linear probe of the features tells, without labels.

Images are turned by quarters, and a probe of the frozen features names the turn. Images without a
way up, such as cells or satellites' pictures, tell nothing here: the share stays at chance.

Source: Gidaris et al. 2018, for the task; Reed et al. 2021, "SelfAugment", for the probe, whose
accuracy they find to rank encoders much as a probe of labels does.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.evaluation.cross_fit import FOLDS, Features, read_in_folds

Images = NDArray[np.uint8]


def turns_named(h: Tensor, features: Features, images: Images, *, seed: int) -> NDArray[np.float64]:
    """Return for each image the share of its turns that a linear probe names, [n].

    A probe is fitted on the turns of other images. Of images that are not square, only the half
    turn has their shape.

    Args:
        h: features [n, D] of the images as they are.
        features: images [n, H, W, C] -> h [n, D].
        images: uint8 [n, H, W, C].
        seed: seeds folds and probes.

    Example:
        >>> shaded = np.zeros((60, 8, 8, 3), dtype=np.uint8)
        >>> shaded[:, 0] = 255
        >>> flat = lambda x: torch.from_numpy(x.reshape(len(x), -1) / 255).float()
        >>> float(turns_named(flat(shaded), flat, shaded, seed=0).mean())
        1.0
    """
    _, height, width, _ = images.shape
    turns = (1, 2, 3) if height == width else (2,)
    turned = [h, *(features(np.ascontiguousarray(np.rot90(images, k, (1, 2)))) for k in turns)]
    count, kinds = len(images), len(turned)
    fold = np.random.default_rng(seed).permutation(count) % FOLDS
    named = read_in_folds(
        torch.cat(turned), np.repeat(np.arange(kinds), count), np.tile(fold, kinds), seed=seed
    )
    share: NDArray[np.float64] = named.reshape(kinds, count).mean(0)
    return share
