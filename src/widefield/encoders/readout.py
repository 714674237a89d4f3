"""The wide readout: pooled features h, and directions of stages and input that h leaves out.

    o = [(h - mean_h) / deviation_h, V_1^T (s_1 - mean_1), V_2^T (s_2 - mean_2), ...]

`readout_fit.py` has the sources s_1, s_2, ... and how the directions V_i are fitted. As h and all
V_i^T s_i are in the output, a linear probe on it is at least as expressive as one on each of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.core.form import Form
from widefield.core.rng import seeded
from widefield.encoders.dictionary import PatchDictionary, cell_roots
from widefield.encoders.encoder import Encoder, FeatureMap, FeatureModule, Projected
from widefield.encoders.stages import INPUT, EncoderStage, find_stages, forward_with_maps
from widefield.encoders.weights.files import READOUT_FILE, load_saved_module, save_module

DICTIONARY = "dictionary"
"""Name of the source that is a dictionary of patches of the input; a readout computes it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A stage or `dictionary`, averaged over a grid of at most `side` x `side` positions."""

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
    filtered: tuple[int, int, int]
    """C, h, w of the input on the grid of its source, which patches are taken from."""

    def __post_init__(self) -> None:
        """Check values that may come from a file."""
        stages = [source.stage for source in self.sources]
        assert len(set(stages)) == len(stages), "a stage has one grid"
        assert stages[-2:] == [INPUT, DICTIONARY]

    @property
    def form(self) -> Form:
        """Size and channels of the examples."""
        channels, height, width = self.input_shape
        return Form(size=(height, width), channels=channels)

    @property
    def names(self) -> tuple[str, ...]:
        """Stage and grid of each source, such as `s3@4`."""
        return tuple(f"{source.stage}@{source.side}" for source in self.sources)

    def line(self) -> str:
        """Return in one sentence what the readout has, and how much of the sources it explains."""
        pairs = zip(self.sources, self.names, strict=True)
        parts = ", ".join(f"{source.width} of {name}" for source, name in pairs)
        percent = ", ".join(f"{100 * share:.0f}" for share in self.variance)
        return (
            f"wide readout, fitted on {self.examples:,} examples of {self.fitted_on}: "
            f"{self.pooled} pooled features and directions of earlier stages and of the input "
            f"({parts}); a linear map of them explains {percent} % of the variance of these"
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
        channels, height, width = config.filtered
        with seeded(0):  # its random filters are replaced
            self.dictionary = PatchDictionary(channels, (height, width))

    if TYPE_CHECKING:

        def __call__(self, h: Tensor, sources: Sequence[Tensor]) -> Tensor: ...

    def extra_repr(self) -> str:
        return f"dim={self.dim}, sources={self.config.names}"

    def forward(self, h: Tensor, sources: Sequence[Tensor]) -> Tensor:
        """Return the output of features h[B, D] and those of each source [B, K g g'], in float32.

        Those of `dictionary` may be left out. Scaling by small deviations would amplify the
        rounding of fewer bits.
        """
        device = h.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return self.forward(h, sources)
        sources = self.with_dictionary([s.float() for s in sources])
        means = [self.get_buffer(f"{buffer_name(name)}_mean").float() for name in self.config.names]
        wanted, found = ([x.shape[-1] for x in xs] for xs in ((self.mean, *means), (h, *sources)))
        if wanted != found:
            raise ValueError(
                f"the readout was fitted on an encoder whose features have widths {wanted}, and "
                f"those of this one are {found}: fit a readout of this encoder"
            )
        parts = [(h.float() - self.mean.float()) * self.scale.float()]
        for name, s, mean in zip(self.config.names, sources, means, strict=True):
            directions = self.directions(name).float()
            parts.append(torch.addmm(-(mean @ directions), s, directions))  # (s - mean) directions
        return torch.cat(parts, dim=1)

    def with_dictionary(self, sources: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the features of all sources: those of `dictionary` follow from the input's."""
        shape = self.config.filtered
        if len(sources) == len(self.config.sources):
            return sources
        if sources[-1].shape[1] != math.prod(shape):
            return sources  # `forward` refuses them
        x = sources[-1].reshape(-1, *shape)
        return [*sources, cell_roots(self.dictionary(x))]

    def directions(self, name: str) -> Tensor:
        """Return the directions of a source, such as `s3@4`, [K g g', width]."""
        return self.get_buffer(f"{buffer_name(name)}_directions")


class Wide(FeatureModule):
    """An encoder with a wide readout: x[B, C, H, W] -> o[B, D + k_1 + k_2 + ...]."""

    def __init__(self, encoder: nn.Module, readout: Readout) -> None:
        super().__init__()
        self.encoder = encoder
        self.readout = readout
        self.dim = readout.dim
        # Found at the first pass, because their layout depends on the images, and kept.
        self.stages: tuple[EncoderStage, ...] | None = None

    def extra_repr(self) -> str:
        return f"dim={self.dim}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of images x[B, C, H, W], one row for each."""
        return self.with_pooled(x)[1]

    def with_pooled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features h [B, D] of the encoder and the output, by one pass."""
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


def source_features(
    encoder: nn.Module, x: Tensor, sources: Sequence[Source], stages: Sequence[EncoderStage] = ()
) -> tuple[Tensor, list[Tensor]]:
    """Return h [B, D] and the features [B, K g g'] of each source, of images x[B, C, H, W].

    Those of `dictionary` are left out: a readout computes them. `stages` are those of
    `find_stages`, if they are known.
    """
    stages = _needed(stages or find_stages(encoder, x[:2]), sources)
    known = {source.stage: source for source in sources}

    def averaged(name: str, x: Tensor) -> Tensor:
        return known[name].features(x) if name in known else x[:0]

    h, features = forward_with_maps(encoder, x, stages, averaged)
    return h.float(), [features[name].float() for name in known if name != DICTIONARY]


def _needed(stages: Sequence[EncoderStage], sources: Sequence[Source]) -> tuple[EncoderStage, ...]:
    known = {stage.name: stage for stage in stages}
    names = dict.fromkeys(source.stage for source in sources if source.stage != DICTIONARY)
    for name in names:
        if name not in known:
            raise ValueError(
                f"the readout takes stage {name!r}, and the encoder has "
                f"{', '.join(known)}: fit a readout of this encoder"
            )
    return tuple(known[name] for name in names)


def buffer_name(name: str) -> str:
    """Return the name of the buffers of a source, such as `s3@4`."""
    return name.replace("@", "_").replace(".", "_")


def grid_of(height: int, width: int, side: int) -> tuple[int, int]:
    """Return rows and columns of the grid of at most `side` x `side` cells of a map.

    Maps of height 1, of windows and waveforms, have as many cells in a row.
    """
    if height == 1:
        return 1, min(width, side**2)
    return min(height, side), min(width, side)


def grid_means(x: Tensor, side: int) -> Tensor:
    """Return the means over the cells of a grid, [B, K g g'], of a map [B, K, h, w]."""
    height, width = x.shape[-2:]
    rows, columns = grid_of(height, width, side)
    if height % rows or width % columns:
        return functional.adaptive_avg_pool2d(x, (rows, columns)).flatten(1)
    if (rows, columns) == (height, width):
        return x.flatten(1)
    # The same means where cells have equal sizes, in less time.
    return functional.avg_pool2d(x, (height // rows, width // columns)).flatten(1)


def _spectrogram_shape(encoder: nn.Module) -> tuple[int, int, int] | None:
    """Return channels, height and width of spectrograms, which encoders of sounds take too."""
    while isinstance(encoder, FeatureMap | Projected):
        encoder = encoder.encoder
    front_end = encoder.config.front_end if isinstance(encoder, Encoder) else None
    return None if front_end is None else (1, front_end.bands, front_end.frames)


def _shape_text(shape: Sequence[int]) -> str:
    return f"{shape[0]} channels and {shape[1]}x{shape[2]} pixels"


def save_readout(readout: Readout, folder: str | Path) -> None:
    """Write `readout.safetensors` into `folder` atomically, with its configuration."""
    save_module(readout, Path(folder) / READOUT_FILE, "readout", asdict(readout.config))


def load_readout(folder: str | Path) -> Readout | None:
    """Load the readout that `save_readout` wrote into `folder`, on the CPU; None without one."""
    return load_saved_module(Path(folder) / READOUT_FILE, "readout", _build)


def _build(values: Any, weights: Mapping[str, Tensor]) -> Readout:
    config = _read_config(values)
    return Readout(config, [len(weights[f"{buffer_name(name)}_mean"]) for name in config.names])


def _read_config(values: Any) -> ReadoutConfig:
    sources = tuple(Source(**source) for source in values["sources"])
    shape, filtered = tuple(values["input_shape"]), tuple(values["filtered"])
    numbers = (*shape, *filtered, values["pooled"], values["examples"])
    if (
        len(shape) != 3
        or len(filtered) != 3
        or not all(type(n) is int and 0 < n < 2**31 for n in numbers)
    ):
        raise ValueError("its sizes are not positive integers")
    if len(values["variance"]) != len(sources) or not isinstance(values["fitted_on"], str):
        raise ValueError("its fields are of other types")
    return ReadoutConfig(
        **{
            **values,
            "sources": sources,
            "input_shape": shape,
            "filtered": filtered,
            "variance": tuple(values["variance"]),
        }
    )
