"""The directions of the wide readout, fitted on examples without labels.

Sources s_1, s_2, ... are maps of stages and of the input, averaged over a grid, flattened and
standardized; the last one is a dictionary of patches of the input (`encoders/dictionary.py`). In
this order,
with o the output so far (at first h, standardized):

    B = argmin_B E |s - B o|^2                  least squares
    V = the k leading eigenvectors of Cov(s - B o)
    o <- [o, V^T s]                             each column divided by its deviation

The directions V are those that o leaves out, but the output has s itself along them, not the
residual: the span with o is the same, and a regularized probe needs smaller weights. No labels are
used and nothing is trained.

Our method. Related: Head2Toe (Evci et al. 2022) and the linear probes of DINOv2 (Oquab et al. 2023)
take features of several layers too.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from widefield.core.devices import eval_mode
from widefield.core.rng import seeded
from widefield.encoders.dictionary import CELLS, PatchDictionary, cell_roots
from widefield.encoders.readout import (
    DICTIONARY,
    Readout,
    ReadoutConfig,
    Source,
    buffer_name,
    grid_of,
    source_features,
)
from widefield.encoders.stages import INPUT, EncoderStage, find_stages, forward_with_maps

FIT_EXAMPLES = 5_000
"""Largest number of examples that a readout is fitted on."""
# Chosen by hand: the output is 512 wide for resnet-tiny (D = 128), 896 for resnet18 (D = 512).
EXTRA = 384
"""Maximum number of directions beside h by default."""
_DIM = 512
"""Maximum width of the output by default, unless twice the width of h is larger."""
# Two stages, the input and its dictionary; the study readout-sources compares other choices.
_SOURCES = 4
"""Largest number of sources by default; each has a direction or more."""
# Chosen by hand: 4,096 features of 5,000 examples are 82 MB.
_LARGEST_SOURCE = 4096
"""Largest number of features of a source; a wider stage has a coarser grid."""
# Chosen by hand, as `_NEGLIGIBLE`; both are applied in double precision.
_RIDGE = 1e-4
"""Ridge of the least squares, relative to the variance of a standardized feature."""
# Without a floor, a feature that is nearly always 0 on the examples of the fit was scaled by up to
# a million, and was then the largest one of other examples.
_LEAST_DEVIATION = 1e-2
"""Smallest standard deviation that columns are divided by, relative to the root mean square."""
_NEGLIGIBLE = 1e-8
"""Eigenvalues of the residual that count as 0, relative to the largest."""
# Halko et al. propose one or two steps and 5 or 10 further directions. Slowly falling eigenvalues,
# as of images, need more of both; how many was chosen by hand.
_ITERATIONS = 8
"""Steps of the subspace iteration."""
_OVERSAMPLING = 16
"""Further directions of the subspace iteration, which are not kept."""
_BATCH = 250
"""Inputs filtered at a time."""


def fit_readout(
    encoder: nn.Module,
    batches: Iterable[Tensor],
    *,
    dim: int | None = None,
    fitted_on: str = "tensors",
) -> Readout:
    """Fit a wide readout of `encoder` on images, in evaluation mode; the encoder is not changed.

    Args:
        encoder: any module with stages (`stage_maps`).
        batches: images x[B, C, H, W] as the encoder takes them, up to `FIT_EXAMPLES` in all.
        dim: width of the output; by default 384 more than that of h, at most the larger of 512 and
            twice that of h, or as many as there are.
        fitted_on: what the images are, for `Readout.config`.
    """
    h, features, sources, shape, grid = _collect(encoder, batches, dim)
    if len(h) < 2:
        raise ValueError(f"a readout is fitted on two examples or more, and there are {len(h)}")
    if not (h.isfinite().all() and all(s.isfinite().all() for s in features)):
        raise ValueError("the features of the encoder contain NaN or infinity: train it again")
    x = features[-1].reshape(-1, *grid)
    channels, height, width = grid
    with seeded(0):
        dictionary = PatchDictionary(channels, (height, width)).to(x.device)
    dictionary.fit(torch.split(x, _BATCH), seed=0)
    parts = [cell_roots(dictionary(part)) for part in torch.split(x, _BATCH)]
    features.append(torch.cat(parts))
    mean, scale = h.mean(0), inverse_deviation(h.std(0))
    output = (h - mean) * scale
    kept, means, directions = [], [], []
    # Later stages first: what an earlier one shares with them then takes none of its directions.
    for source, s in zip(sources, features, strict=True):
        center, inverse = s.mean(0), inverse_deviation(s.std(0))
        s -= center
        s *= inverse
        v = leading_directions(_residual(output, s, _gram_factor(output)), source.width)
        projected = s @ v
        spread = inverse_deviation(projected.std(0))
        output = torch.cat([output, projected * spread], dim=1)
        kept.append(Source(stage=source.stage, side=source.side, width=v.shape[1]))
        means.append(center)
        directions.append(inverse[:, None] * v * spread)
    config = ReadoutConfig(
        sources=tuple(kept),
        input_shape=shape,
        pooled=h.shape[1],
        fitted_on=fitted_on,
        examples=len(h),
        variance=explained(output, features),
        filtered=grid,
    )
    readout = Readout(config, [len(center) for center in means]).to(h.device)
    if dim is not None and readout.dim != dim:
        raise ValueError(
            f"dim is {dim}, and {len(h)} examples of this encoder have {readout.dim} such features "
            "or fewer: give at most as many, or more examples"
        )
    buffers = {"mean": mean, "scale": scale}
    buffers |= {f"dictionary.{key}": value for key, value in dictionary.state_dict().items()}
    for name, center, direction in zip(config.names, means, directions, strict=True):
        buffers |= {
            f"{buffer_name(name)}_mean": center,
            f"{buffer_name(name)}_directions": direction,
        }
    readout.load_state_dict(buffers)
    return readout.eval()


def default_sources(stages: Sequence[str], extra: int = EXTRA) -> tuple[Source, ...]:
    """Return the sources of an encoder with these stages, in the order in which they are fitted.

    These are the two stages before the last one, backwards, then the input and its dictionary,
    in place of still earlier stages. Each has the same number of directions, up to rounding.
    """
    # The last stage is what pooling takes its mean of. Local features in place of still earlier
    # stages raise the accuracy of the class by up to eight points (study readout-sources).
    inner = [name for name in stages if name != INPUT and "." not in name]
    side_of = {**dict.fromkeys(reversed(inner[-3:-1] or inner), 4), INPUT: 32, DICTIONARY: CELLS}
    width, rest = divmod(extra, len(side_of))
    return tuple(
        Source(stage=name, side=side, width=width + (i < rest))
        for i, (name, side) in enumerate(side_of.items())
    )


def explained(output: Tensor, sources: Sequence[Tensor]) -> tuple[float, ...]:
    """Return the share of the variance of each source [n, K] explained by linear maps of `output`.

    Both have mean 0.
    """
    factor = _gram_factor(output)
    ratios = []
    for s in sources:
        total = float(s.square().mean())
        left = float(_residual(output, s, factor).square().mean())
        ratios.append(1.0 if total == 0 else 1 - left / total)
    return tuple(ratios)


def _collect(
    encoder: nn.Module, batches: Iterable[Tensor], dim: int | None
) -> tuple[Tensor, list[Tensor], tuple[Source, ...], tuple[int, int, int], tuple[int, int, int]]:
    """Return h [n, D], features of each source [n, K g g'], the sources, and two shapes.

    These are C, H, W of the images, and C, h, w of the network's input on its grid.
    """
    sources: tuple[Source, ...] = ()
    stages: tuple[EncoderStage, ...] = ()
    rows: list[tuple[Tensor, list[Tensor]]] = []
    shape, grid, count = (0, 0, 0), (0, 0, 0), 0
    with eval_mode(encoder), torch.no_grad():
        for x in batches:
            if not sources:
                stages = find_stages(encoder, x[:2])
                h, maps = forward_with_maps(encoder, x[:2], stages)
                extra = _extra(dim, h.shape[1])
                sources = tuple(_limit_grid(s, maps) for s in default_sources(list(maps), extra))
                shape = (x.shape[1], x.shape[2], x.shape[3])
                channels, height, width = maps[INPUT].shape[1:]
                grid = (channels, *grid_of(height, width, sources[-2].side))
            x = x[: FIT_EXAMPLES - count]
            rows.append(source_features(encoder, x, sources, stages))
            count += len(x)
            if count == FIT_EXAMPLES:
                break
    h = torch.cat([h for h, _ in rows]) if rows else torch.empty(0, 1)
    return (
        h,
        [torch.cat(parts) for parts in zip(*(s for _, s in rows), strict=True)],
        sources,
        shape,
        grid,
    )


def _extra(dim: int | None, pooled: int) -> int:
    least = pooled + _SOURCES
    if dim is not None and dim < least:
        raise ValueError(
            f"dim is {dim}, and there are {pooled} pooled features: give at least {least}"
        )
    return min(EXTRA, max(2 * pooled, _DIM) - pooled) if dim is None else dim - pooled


def _limit_grid(source: Source, maps: Mapping[str, Tensor]) -> Source:
    """Return the source with the finest grid of at most `_LARGEST_SOURCE` features."""
    side = source.side
    if source.stage == DICTIONARY:
        return source
    while side > 1 and maps[source.stage].shape[1] * side**2 > _LARGEST_SOURCE:
        side //= 2
    return Source(stage=source.stage, side=side, width=source.width)


def _gram_factor(o: Tensor) -> Tensor:
    """Return the Cholesky factor of o^T o / n + ridge, or of o o^T / n + ridge for o [n < D, D]."""
    gram = (o @ o.T if _has_few_rows(o) else o.T @ o).double() / len(o)
    gram += _RIDGE * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.linalg.cholesky(gram)


def _residual(o: Tensor, s: Tensor, factor: Tensor) -> Tensor:
    """Return s - o B, B = argmin_B |s - o B|^2 / n + ridge |B|^2, for o [n, D] and s [n, K].

    `factor` is that of o. For few rows, s - o B = ridge (o o^T / n + ridge)^-1 s has less work.
    """
    if _has_few_rows(o):
        return _RIDGE * torch.cholesky_solve(s.double(), factor).to(s)
    return s - o @ torch.cholesky_solve((o.T @ s).double() / len(o), factor).to(s)


def _has_few_rows(o: Tensor) -> bool:
    return len(o) < o.shape[1]


def leading_directions(residual: Tensor, width: int) -> Tensor:
    """Return the leading eigenvectors of R^T R for R [n, K], orthonormal [K, min(n - 1, K, width)].

    There are fewer if further eigenvalues are nearly 0, whose eigenvectors are arbitrary. Subspace
    iteration (Halko, Martinsson & Tropp 2011, algorithm 4.4), from a fixed start.
    """
    width = min(width, len(residual) - 1, residual.shape[1])  # the rows have mean 0
    count = min(width + _OVERSAMPLING, residual.shape[1])
    start = torch.randn(residual.shape[1], count, generator=torch.Generator().manual_seed(0))
    basis = torch.linalg.qr(start.to(residual))[0]
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(residual.T @ (residual @ basis))[0]
    reduced = residual @ basis
    values, vectors = torch.linalg.eigh((reduced.T @ reduced).double())
    rank = int((values > _NEGLIGIBLE * values[-1]).sum().clamp_min(1))
    return basis @ vectors.flip(1)[:, : min(width, rank)].to(basis)


def inverse_deviation(deviation: Tensor) -> Tensor:
    """Return 1 / deviation, with at least a hundredth of the root mean square as the deviation.

    Features that hardly vary would otherwise be large on other examples. It is 0 for constant ones.
    """
    floor = _LEAST_DEVIATION * deviation.square().mean().sqrt()
    return torch.where(deviation > 0, 1 / torch.maximum(deviation, floor), 0.0)
