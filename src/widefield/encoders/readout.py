"""The wide readout: pooled features h, and directions of stages and input that h leaves out.

Sources s_1, s_2, ... are maps of stages and of the input, averaged over a grid, flattened and
standardized; the last one has random filters of the input (`encoders/patches.py`). In this order,
with o the output so far (at first h, standardized):

    B = argmin_B E |s - B o|^2                  least squares
    V = the k leading eigenvectors of Cov(s - B o)
    o <- [o, V^T s]                             each column divided by its deviation

The directions V are those that o leaves out, but the output has s itself along them, not the
residual: the span with o is the same, and a regularized probe needs smaller weights. As h and all
V^T s are in the output, a linear probe on it is at least as expressive as one on each of them. No
labels are used and nothing is trained.

Our method. Related: Head2Toe (Evci et al. 2022) and the linear probes of DINOv2 (Oquab et al. 2023)
take features of several layers too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from widefield.core.modes import eval_mode
from widefield.encoders.encoder import Encoder
from widefield.encoders.feature_map import FeatureMap
from widefield.encoders.patches import (
    filter_shape,
    fit_patch_filters,
    grid_means,
    grid_of,
    patch_features,
)
from widefield.encoders.projected import Projected
from widefield.encoders.stages import INPUT, EncoderStage, find_stages, forward_with_maps

FIT_EXAMPLES = 5_000
"""Largest number of examples that a readout is fitted on."""
EXTRA = 384
"""Maximum number of directions beside h by default."""
_DIM = 512
"""Maximum width of the output by default, unless twice the width of h is larger."""
_SOURCES = 4
"""Largest number of sources by default; each has a direction or more."""
_LARGEST_SOURCE = 4096
"""Largest number of features of a source; a wider stage has a coarser grid."""
_RIDGE = 1e-4
"""Ridge of the least squares, relative to the variance of a standardized feature."""
_LEAST_DEVIATION = 1e-2
"""Smallest standard deviation that columns are divided by, relative to the root mean square."""
_NEGLIGIBLE = 1e-8
"""Eigenvalues of the residual that count as 0, relative to the largest."""
_ITERATIONS = 8
"""Steps of the subspace iteration."""
_OVERSAMPLING = 16
"""Further directions of the subspace iteration, which are not kept."""
_BATCH = 250
"""Inputs filtered at a time."""
PATCH_FILTERS = "patches"
"""Name of the source of random filters of the input."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A stage or `patches`, averaged over a grid of at most `side` x `side` positions."""

    stage: str
    side: int
    width: int
    """Number of directions kept."""

    def __post_init__(self) -> None:
        """Check values that may come from a file."""
        assert isinstance(self.stage, str)
        assert 0 < self.side < 2**10
        assert 0 < self.width < 2**20

    def features(self, x: Tensor) -> Tensor:
        """Return the means over the grid, [B, K g g'], of a map [B, K, h, w]."""
        return grid_means(x, self.side)


@dataclass(frozen=True, kw_only=True)
class ReadoutConfig:
    """What a readout takes, and what it was fitted on; every field is plain JSON."""

    sources: tuple[Source, ...]
    input_shape: tuple[int, int, int]
    """C, H, W of the examples."""
    pooled: int
    """Width of h."""
    fitted_on: str
    """Source of the examples, without the folders above it."""
    examples: int
    variance: tuple[float, ...]
    """Share of each source's variance that a linear map of the output explains, on these."""
    filtered: tuple[int, int, int] | None = None
    """C, h, w of the input on the grid of its source, which patches are taken from."""

    def __post_init__(self) -> None:
        """Check values that may come from a file."""
        stages = [source.stage for source in self.sources]
        assert len(set(stages)) == len(stages), "a stage has one grid"
        assert (PATCH_FILTERS in stages) == (self.filtered is not None)
        assert PATCH_FILTERS not in stages or stages[-2:] == [INPUT, PATCH_FILTERS]

    @property
    def names(self) -> tuple[str, ...]:
        """Stage and grid of each source, such as `s3@4`."""
        return tuple(f"{source.stage}@{source.side}" for source in self.sources)

    def line(self) -> str:
        """Return in one sentence what the readout has, and how much of the sources it explains."""
        pairs = zip(self.sources, self.names, strict=True)
        parts = ", ".join(f"{source.width} of {name}" for source, name in pairs)
        shares = ", ".join(f"{100 * share:.0f}" for share in self.variance)
        return (
            f"wide readout, fitted on {self.examples:,} examples of {self.fitted_on}: "
            f"{self.pooled} pooled features and directions of earlier stages and of the input "
            f"({parts}); a linear map of them explains {shares} % of the variance of these"
        )


class Readout(nn.Module):
    """Affine map of h and sources to the output o[B, D + k_1 + k_2 + ...]."""

    mean: Tensor
    scale: Tensor

    def __init__(self, config: ReadoutConfig, source_sizes: Sequence[int]) -> None:
        super().__init__()
        self.config = config
        self.dim = config.pooled + sum(source.width for source in config.sources)
        self.register_buffer("mean", torch.zeros(config.pooled))
        self.register_buffer("scale", torch.ones(config.pooled))
        for name, size, source in zip(config.names, source_sizes, config.sources, strict=True):
            key = buffer_name(name)
            self.register_buffer(f"{key}_mean", torch.zeros(size))
            self.register_buffer(f"{key}_directions", torch.zeros(size, source.width))
        if config.filtered is not None:
            shape = filter_shape(config.filtered)
            self.register_buffer("filters", torch.zeros(shape))
            self.register_buffer("offset", torch.zeros(shape[0]))

    if TYPE_CHECKING:

        def __call__(self, h: Tensor, sources: Sequence[Tensor]) -> Tensor:
            """Call `forward`, with its types."""
            ...

    def extra_repr(self) -> str:
        """Return the width of the output and its sources, for the repr."""
        return f"dim={self.dim}, sources={self.config.names}"

    def forward(self, h: Tensor, sources: Sequence[Tensor]) -> Tensor:
        """Return the output of features h[B, D] and those of each source [B, K g g'], in float32.

        Those of `patches` may be left out. Scaling by small deviations would amplify the rounding
        of fewer bits.

        Raises:
            ValueError: features of other widths than the readout was fitted on.
        """
        device = h.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return self.forward(h, sources)
        sources = self.with_patches([s.float() for s in sources])
        means = [self.get_buffer(f"{buffer_name(name)}_mean").float() for name in self.config.names]
        fitted, given = ([x.shape[-1] for x in xs] for xs in ((self.mean, *means), (h, *sources)))
        if fitted != given:
            raise ValueError(
                f"the readout was fitted on an encoder whose features have widths {fitted}, and "
                f"those of this one are {given}: fit a readout of this encoder"
            )
        parts = [(h.float() - self.mean.float()) * self.scale.float()]
        for name, s, mean in zip(self.config.names, sources, means, strict=True):
            directions = self.directions(name).float()
            parts.append(torch.addmm(-(mean @ directions), s, directions))  # (s - mean) directions
        return torch.cat(parts, dim=1)

    def with_patches(self, sources: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the features of all sources: those of `patches` follow from those of the input."""
        shape, last = self.config.filtered, self.config.sources[-1]
        if shape is None or len(sources) == len(self.config.sources):
            return sources
        if sources[-1].shape[1] != math.prod(shape):
            return sources  # `forward` refuses them
        filters, offset = (self.get_buffer(name).float() for name in ("filters", "offset"))
        x = sources[-1].reshape(-1, *shape)
        return [*sources, patch_features(x, filters, offset, last.side)]

    def directions(self, name: str) -> Tensor:
        """Return the directions of a source, such as `s3@4`, [K g g', width]."""
        return self.get_buffer(f"{buffer_name(name)}_directions")


class Wide(nn.Module):
    """An encoder with a wide readout: x[B, C, H, W] -> o[B, D + k_1 + k_2 + ...].

    One forward pass of the encoder gives h and all maps.

    Example:
        >>> from widefield.encoders import build_encoder
        >>> encoder, images = build_encoder("resnet-tiny", seed=0), torch.rand(600, 3, 32, 32)
        >>> wide = Wide(encoder, fit_readout(encoder, images.split(100)))
        >>> encoder(images[:2]).shape[1], wide(images[:2]).shape[1]
        (128, 512)
    """

    def __init__(self, encoder: nn.Module, readout: Readout) -> None:
        super().__init__()
        self.encoder = encoder
        self.readout = readout
        self.dim = readout.dim
        self.stages: tuple[EncoderStage, ...] | None = None

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Call `forward`, with its types."""
            ...

    def extra_repr(self) -> str:
        """Return the width of the output, for the repr."""
        return f"dim={self.dim}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of images x[B, C, H, W], one row for each.

        Raises:
            ValueError: images of other channels or another size than the readout was fitted on.
        """
        return self.with_pooled(x)[1]

    def with_pooled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features h [B, D] of the encoder and the output, by one pass.

        Raises:
            ValueError: as `forward`.
        """
        expected = self.readout.config.input_shape
        if tuple(x.shape[1:]) not in (expected, _spectrogram_shape(self.encoder)):
            raise ValueError(
                f"the readout was fitted on examples of {_shape_text(expected)}, not "
                f"{_shape_text(x.shape[1:])}: give such ones, or take pooled features"
            )
        sources = self.readout.config.sources
        if self.stages is None:
            self.stages = _needed(find_stages(self.encoder, x[:2]), sources)
        h, features = source_features(self.encoder, x, sources, self.stages)
        return h, self.readout(h, features)


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

    Raises:
        ValueError: an encoder without stages, fewer than two examples, features that are not
            finite, or a `dim` of less than 4 more than the width of h, or of more than there are.
    """
    h, features, sources, shape, grid = _collect(encoder, batches, dim)
    if len(h) < 2:
        raise ValueError(f"a readout is fitted on two examples or more, and there are {len(h)}")
    if not (h.isfinite().all() and all(s.isfinite().all() for s in features)):
        raise ValueError("the features of the encoder contain NaN or infinity: train it again")
    x = features[-1].reshape(-1, *grid)
    filters, offset = fit_patch_filters(x)
    parts = (
        patch_features(part, filters, offset, sources[-1].side) for part in torch.split(x, _BATCH)
    )
    features.append(torch.cat(list(parts)))
    mean, scale = h.mean(0), inverse_deviation(h.std(0))
    output = (h - mean) * scale
    kept, means, directions = [], [], []
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
    buffers = {"mean": mean, "scale": scale, "filters": filters, "offset": offset}
    for name, center, direction in zip(config.names, means, directions, strict=True):
        buffers |= {
            f"{buffer_name(name)}_mean": center,
            f"{buffer_name(name)}_directions": direction,
        }
    readout.load_state_dict(buffers)
    return readout.eval()


def default_sources(stages: Sequence[str], extra: int = EXTRA) -> tuple[Source, ...]:
    """Return the sources of an encoder with these stages, in the order in which they are fitted.

    These are the two stages before the last one, backwards, then the input and its patches, in
    place of still earlier stages. Each has the same number of directions, up to rounding.

    Example:
        >>> sources = default_sources(["input", "stem", "s1", "s2", "s3", "s4"])
        >>> [(source.stage, source.side, source.width) for source in sources]
        [('s3', 4, 96), ('s2', 4, 96), ('input', 32, 96), ('patches', 4, 96)]
    """
    inner = [name for name in stages if name != INPUT and "." not in name]
    sides = {**dict.fromkeys(reversed(inner[-3:-1] or inner), 4), INPUT: 32, PATCH_FILTERS: 4}
    width, rest = divmod(extra, len(sides))
    return tuple(
        Source(stage=name, side=side, width=width + (i < rest))
        for i, (name, side) in enumerate(sides.items())
    )


def explained(output: Tensor, sources: Sequence[Tensor]) -> tuple[float, ...]:
    """Return the share of the variance of each source [n, K] explained by linear maps of `output`.

    Both have mean 0.

    Example:
        >>> x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
        >>> x -= x.mean(0)
        >>> [round(share, 3) for share in explained(x, [x, x @ torch.ones(3, 1)])]
        [1.0, 1.0]
    """
    factor = _gram_factor(output)
    shares = []
    for s in sources:
        total = float(s.square().mean())
        left = float(_residual(output, s, factor).square().mean())
        shares.append(1.0 if total == 0 else 1 - left / total)
    return tuple(shares)


def source_features(
    encoder: nn.Module, x: Tensor, sources: Sequence[Source], stages: Sequence[EncoderStage] = ()
) -> tuple[Tensor, list[Tensor]]:
    """Return h [B, D] and the features [B, K g g'] of each source, of images x[B, C, H, W].

    Those of `patches` are left out: a readout computes them. `stages` are those of `find_stages`,
    if they are known.
    """
    stages = _needed(stages or find_stages(encoder, x[:2]), sources)
    known = {source.stage: source for source in sources}

    def averaged(name: str, x: Tensor) -> Tensor:
        return known[name].features(x) if name in known else x[:0]

    h, features = forward_with_maps(encoder, x, stages, averaged)
    return h.float(), [features[name].float() for name in known if name != PATCH_FILTERS]


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
                sources = tuple(_fitting(s, maps) for s in default_sources(list(maps), extra))
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
    """Return the number of directions beside `pooled` features."""
    least = pooled + _SOURCES
    if dim is not None and dim < least:
        raise ValueError(
            f"dim is {dim}, and there are {pooled} pooled features: give at least {least}"
        )
    return min(EXTRA, max(2 * pooled, _DIM) - pooled) if dim is None else dim - pooled


def _fitting(source: Source, maps: Mapping[str, Tensor]) -> Source:
    """Return the source with the finest grid of at most `_LARGEST_SOURCE` features."""
    side = source.side
    if source.stage == PATCH_FILTERS:
        return source
    while side > 1 and maps[source.stage].shape[1] * side**2 > _LARGEST_SOURCE:
        side //= 2
    return Source(stage=source.stage, side=side, width=source.width)


def _needed(stages: Sequence[EncoderStage], sources: Sequence[Source]) -> tuple[EncoderStage, ...]:
    """Return the stages that the sources are maps of.

    Raises:
        ValueError: one is not a stage of the encoder.
    """
    known = {stage.name: stage for stage in stages}
    names = dict.fromkeys(source.stage for source in sources if source.stage != PATCH_FILTERS)
    for name in names:
        if name not in known:
            raise ValueError(
                f"the readout takes stage {name!r}, and the encoder has "
                f"{', '.join(known)}: fit a readout of this encoder"
            )
    return tuple(known[name] for name in names)


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

    Example:
        >>> [round(x, 1) for x in inverse_deviation(torch.tensor([2.0, 2.0, 0.0, 1e-6])).tolist()]
        [0.5, 0.5, 0.0, 70.7]
    """
    floor = _LEAST_DEVIATION * deviation.square().mean().sqrt()
    return torch.where(deviation > 0, 1 / torch.maximum(deviation, floor), 0.0)


def buffer_name(name: str) -> str:
    """Return the name of the buffers of a source, such as `s3@4`."""
    return name.replace("@", "_").replace(".", "_")


def _spectrogram_shape(encoder: nn.Module) -> tuple[int, int, int] | None:
    """Return channels, height and width of spectrograms, which encoders of sounds take too."""
    while isinstance(encoder, FeatureMap | Projected):
        encoder = encoder.encoder
    front_end = encoder.config.front_end if isinstance(encoder, Encoder) else None
    return None if front_end is None else (1, front_end.bands, front_end.frames)


def _shape_text(shape: Sequence[int]) -> str:
    return f"{shape[0]} channels and {shape[1]}x{shape[2]} pixels"
