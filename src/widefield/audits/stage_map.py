"""Linear-probe accuracy from each stage of an encoder, on grids: where a feature is.

The map of a stage is averaged over a grid of 1 x 1, 2 x 2 and 4 x 4 positions. More than 256
numbers are reduced to their leading principal directions, standardized, so that all probes take
about the same time.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from widefield.core.devices import eval_mode, on_device
from widefield.core.hardware import choose_device
from widefield.data.select import spread_rows
from widefield.encoders.readout import Source
from widefield.encoders.readout_fit import inverse_deviation, leading_directions
from widefield.encoders.stages import (
    INPUT,
    EncoderStage,
    NoStagesError,
    find_stages,
    forward_with_maps,
)
from widefield.inference.splits import TrainTest
from widefield.probes.features import batches, image_batch
from widefield.probes.outcome import Outcome
from widefield.probes.score import score

# Chosen by hand, as the sizes below: a feature at a fixed place needs a grid, and a probe of more
# than 256 numbers takes longer.
SIDES = (1, 2, 4)
MAX_TRAIN = 5000
"""Largest number of examples that the probes are fitted on."""
_WIDTH = 256
"""Largest number of features of a probe."""
_PCA_EXAMPLES = 1000
"""Examples that principal directions are fitted on."""
# Chosen by hand: maps of all stages of a batch are in memory at once.
_BATCH = 250

StageOutcomes = Mapping[str, Mapping[str, Outcome]]
"""Stage and grid -> task -> outcome of a linear probe."""


def stage_outcomes(encoder: nn.Module, data: TrainTest, *, seed: int) -> StageOutcomes:
    """Return cell -> task -> outcome of a linear probe.

    Cells are the stages on grids, such as `s3@4`, and class tokens, `b12.class`. The input of the
    network is none of them. The result is empty for an encoder without stages.
    """
    train = data.train.subset(data.train.spread_rows(MAX_TRAIN))
    device = choose_device("auto")
    with on_device(encoder, device), eval_mode(encoder), torch.inference_mode():
        try:
            stages = find_stages(encoder, image_batch(train.images[:2], device))
        except NoStagesError:
            return {}
        stages = tuple(stage for stage in stages if stage.name != INPUT)
        cells = _fit_cells(encoder, stages, train.images, device)

        def features(maps: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: cell.features(maps) for name, cell in cells.items()}

        train_maps, test_maps = (
            _concat_maps(encoder, stages, half.images, device, features)
            for half in (train, data.test)
        )
    return {
        # Cloned, because tensors of inference mode cannot be changed outside of it.
        name: score(
            train_maps[name].clone(),
            train,
            test_maps[name].clone(),
            data.test,
            with_knn=False,
            seed=seed,
        )
        for name in cells
    }


@dataclass(frozen=True, kw_only=True)
class _Cell:
    """A stage on a grid, standardized, along its leading principal directions."""

    source: Source
    mean: Tensor
    components: Tensor

    def features(self, maps: Mapping[str, Tensor]) -> Tensor:
        s = self.source.features(maps[self.source.stage]).float()
        return (s - self.mean) @ self.components


def _fit_cells(
    encoder: nn.Module, stages: tuple[EncoderStage, ...], images: np.ndarray, device: torch.device
) -> dict[str, _Cell]:
    """Return name -> cell; a grid as fine as that of a coarser one is left out."""
    cells = {}
    maps = _concat_maps(encoder, stages, images[spread_rows(len(images), _PCA_EXAMPLES)], device)
    for stage, x in maps.items():
        if stage.endswith(".registers"):
            continue
        largest = max(x.shape[2:])
        for side in (side for side in SIDES if side == 1 or side // 2 < largest):
            source = Source(stage=stage, side=side, width=_WIDTH)
            cells[f"{stage}@{side}" if largest > 1 else stage] = _fit_cell(source, x)
    return cells


def _fit_cell(source: Source, x: Tensor) -> _Cell:
    s = source.features(x)
    mean, inverse = s.mean(0), inverse_deviation(s.std(0))
    if s.shape[1] <= source.width:
        return _Cell(source=source, mean=mean, components=torch.diag(inverse))
    # Standardized first: a channel of large values would be all of the leading directions.
    components = leading_directions((s - mean) * inverse, source.width)
    return _Cell(source=source, mean=mean, components=inverse[:, None] * components)


def _concat_maps(
    encoder: nn.Module,
    stages: tuple[EncoderStage, ...],
    images: np.ndarray,
    device: torch.device,
    features: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] = dict,
) -> dict[str, Tensor]:
    """Return the maps of some images by stage, [n, K, h, w], or what `features` makes of them."""
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for x in batches(images, _BATCH, device):
        for name, found in features(forward_with_maps(encoder, x, stages)[1]).items():
            parts[name].append(found.float())
    return {name: torch.cat(part) for name, part in parts.items()}
