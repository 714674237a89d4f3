"""Floors of a classification: raw pixels or spectrograms, and the untrained network."""

from collections.abc import Iterator

from torch import Tensor

from widefield.core.types import Kind
from widefield.data import Dataset
from widefield.inference.features import FeatureExtractor
from widefield.probes import pixels
from widefield.workflows.probe_scores import untrained_readouts

_MAX_LABELS = 300
"""Largest number of labels for which floors are measured: there are many raw pixels."""
_UNTRAINED = "the untrained network"


FloorFeatures = tuple[Tensor, int | None]
"""Features [m, D], and how many of wide ones are the pooled ones."""


def floor_features(extractor: FeatureExtractor, labeled: Dataset) -> dict[str, list[FloorFeatures]]:
    """Return floor -> features of the labeled examples; of several the best counts.

    The untrained networks are those of `untrained_readouts`, with pooled and wide features. An
    encoder is not compared with itself: pixels have no such floor, and `random` has only raw
    pixels.
    """
    is_pixels = extractor.encoder is None and extractor.architecture is None
    if is_pixels or len(labeled) > _MAX_LABELS:
        return {}
    found: dict[str, list[FloorFeatures]] = {_raw(labeled.kind): [(pixels(labeled.inputs), None)]}
    if extractor.architecture is None:
        found[_UNTRAINED] = list(_untrained_features(extractor, labeled))
    return found


def _untrained_features(extractor: FeatureExtractor, labeled: Dataset) -> Iterator[FloorFeatures]:
    for readouts in untrained_readouts(extractor, labeled):
        for readout in filter(None, readouts):
            yield readout.features(labeled.inputs).cpu(), readout.pooled


def _raw(kind: Kind) -> str:
    """Return what the floor without a network is: sounds have a spectrogram for pixels."""
    return {"images": "raw pixels", "sounds": "the raw spectrogram", "windows": "raw values"}[kind]
