"""Every loss as a function of tensors, with its equation, shapes and source.

Written by scripts/losses.py from the methods' files. Tensors and numbers that do not fit are a
`ValueError`, which says what is wrong.

Example:
    >>> import torch
    >>> z = torch.eye(4)
    >>> print(f"{nt_xent(z, z, temperature=0.1):.4f}")
    0.0003
"""

from widefield.head.losses import batch_cross_entropy as batch_cross_entropy
from widefield.head.losses import decoupled_contrast as decoupled_contrast
from widefield.head.losses import view_contrast as view_contrast
from widefield.methods.alpha_cl import alpha_cl as alpha_cl
from widefield.methods.alpha_cl import pair_importance as pair_importance
from widefield.methods.alpha_cl import symmetric_alpha_cl as symmetric_alpha_cl
from widefield.methods.barlow_twins import barlow_twins as barlow_twins
from widefield.methods.byol import prediction_error as prediction_error
from widefield.methods.dcl import dcl as dcl
from widefield.methods.diet import index_cross_entropy as index_cross_entropy
from widefield.methods.diet import one_hot_error as one_hot_error
from widefield.methods.distill import feature_cosine as feature_cosine
from widefield.methods.infonce import infonce as infonce
from widefield.methods.infonce import symmetric_infonce as symmetric_infonce
from widefield.methods.lejepa import lejepa as lejepa
from widefield.methods.lejepa import sigreg as sigreg
from widefield.methods.mmcr import mmcr as mmcr
from widefield.methods.moco import queue_cross_entropy as queue_cross_entropy
from widefield.methods.simclr import nt_xent as nt_xent
from widefield.methods.simclr import one_sided as one_sided
from widefield.methods.simsiam import negative_cosine as negative_cosine
from widefield.methods.spectral import spectral_contrastive as spectral_contrastive
from widefield.methods.spectral import spectral_in_ball as spectral_in_ball
from widefield.methods.vicreg import vicreg as vicreg

__all__ = [
    "alpha_cl",
    "barlow_twins",
    "batch_cross_entropy",
    "dcl",
    "decoupled_contrast",
    "feature_cosine",
    "index_cross_entropy",
    "infonce",
    "lejepa",
    "mmcr",
    "negative_cosine",
    "nt_xent",
    "one_hot_error",
    "one_sided",
    "pair_importance",
    "prediction_error",
    "queue_cross_entropy",
    "sigreg",
    "spectral_contrastive",
    "spectral_in_ball",
    "symmetric_alpha_cl",
    "symmetric_infonce",
    "vicreg",
    "view_contrast",
]
