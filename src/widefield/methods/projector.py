"""The projection head, which is trained together with the encoder."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional

from widefield.core.batch import Shape, check_tensors
from widefield.core.hardware import check_memory
from widefield.core.precision import at_least_float32
from widefield.core.settings import Settings


@dataclass(frozen=True, kw_only=True)
class ProjectorConfig(Settings):
    """Shape of the projection head.

    Example:
        >>> ProjectorConfig(layers=2, width=16, dim=8).build(32)(torch.rand(4, 32)).shape
        torch.Size([4, 8])
    """

    layers: Annotated[int, Ge(0)] = 3
    """Linear layers of the projection head; 0 for none, then rows have the encoder's width."""
    width: Annotated[int, Ge(1)] = 512
    """Hidden width of the projection head."""
    dim: Annotated[int, Ge(1)] = 128
    """Output width of the projection head, and of a row of the per-example head."""
    batch_norm: bool = True
    """Normalize the projection head's hidden layers over the batch."""

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with other values.

        Raises:
            ValueError: 0 layers, and another shape for them.
        """
        result = super().changed(values)
        others = [name for name in values if name != "layers" and values[name] != vars(self)[name]]
        if result.layers == 0 and others:
            raise ValueError(
                f"{others[0]} {values[others[0]]} is of no use with 0 layers, which leave features "
                "as they are: leave it out"
            )
        return result

    def out_dim(self, feature_dim: int) -> int:
        """Return the output width of `build(feature_dim)`."""
        return self.dim if self.layers else feature_dim

    def build(self, feature_dim: int) -> "Projector":
        """Build the head for features of width `feature_dim`."""
        return Projector(
            feature_dim,
            layers=self.layers,
            width=self.width,
            out_dim=self.dim,
            batch_norm=self.batch_norm,
        )

    def build_predictor(self, feature_dim: int, width: int) -> "Projector":
        """Build a two-layer predictor of hidden width `width`, [B, m] -> [B, m], for this head.

        Source: BYOL (Grill et al. 2020), section 3.3; SimSiam (Chen & He 2021), section 3.
        """
        dim = self.out_dim(feature_dim)
        return Projector(dim, layers=2, width=width, out_dim=dim, batch_norm=self.batch_norm)


class Projector(nn.Sequential):
    """An MLP [B, in_dim] -> [B, out_dim] with ReLU between its `layers` linear layers.

    `batch_norm` normalizes each hidden layer before its ReLU, as SimCLR's public code does; the
    S-DIET paper has none. Features are taken before this head. Without layers it is the identity.

    Raises:
        ValueError: it needs more memory than this machine has.

    Example:
        >>> projector = ProjectorConfig(layers=1, dim=8).build(32)
        >>> isinstance(projector, Projector), projector(torch.rand(4, 32)).shape
        (True, torch.Size([4, 8]))

    Source: S-DIET (2025), section 5.1.2; SimCLR (Chen et al. 2020), section 4.2.
    """

    def __init__(
        self, in_dim: int, *, layers: int, width: int, out_dim: int, batch_norm: bool
    ) -> None:
        _check_memory(in_dim, layers, width, out_dim)
        widths = [in_dim, *[width] * (layers - 1)]
        modules: list[nn.Module] = []
        for a, b in itertools.pairwise(widths):
            # Batch normalization subtracts the mean, and a bias with it.
            modules.append(nn.Linear(a, b, bias=not batch_norm))
            if batch_norm:
                modules.append(nn.BatchNorm1d(b))
            modules.append(nn.ReLU(inplace=True))
        if layers:
            modules.append(nn.Linear(widths[-1], out_dim))
        super().__init__(*modules)
        shape = {"in_dim": in_dim, "layers": layers, "width": width, "out_dim": out_dim}
        self.arguments: dict[str, Any] = {**shape, "batch_norm": batch_norm}

    if TYPE_CHECKING:

        def __call__(self, h: Tensor) -> Tensor: ...

    def forward(self, h: Tensor) -> Tensor:
        """Return projections [B, m] of features h [B, D].

        Raises:
            ValueError: h has another width than the head was built for.
        """
        check_tensors({"h": h}, {"h": Shape("b D")}, {"D": self.arguments["in_dim"]})
        return super().forward(h)  # type: ignore[no-untyped-call]


def _check_memory(in_dim: int, layers: int, width: int, out_dim: int) -> None:
    """Check that weights, gradients and two moments of the head fit into memory."""
    if layers == 0:
        return
    weights = in_dim * out_dim
    if layers > 1:
        weights = in_dim * width + (layers - 2) * width**2 + width * out_dim
    # 4 bytes each of a weight, its gradient and its moments; about 4 kB of a layer itself.
    needed = 16 * weights + 4096 * layers
    check_memory(needed, f"a projector of {layers} layers, width {width} and dim {out_dim}")


@torch.no_grad()
def projection_std(z: Tensor) -> Tensor:
    """Return the deviation of the directions of z [B, m]: 1 if isotropic, 0 if all are the same.

    Mean over dimensions of the deviation of z / |z| over the batch, times sqrt(m). A projector can
    collapse while the features before it have not; losses that allow it log this number.

    Source: SimSiam (Chen & He 2021), section 4.1.
    """
    unit = functional.normalize(at_least_float32(z), dim=1)
    return unit.std(0, correction=0).mean() * z.shape[1] ** 0.5
