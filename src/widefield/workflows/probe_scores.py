"""Probes of the pooled and wide features of an encoder and of its untrained floors."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from widefield.core.hardware import choose_device
from widefield.data import Dataset
from widefield.encoders import Wide
from widefield.inference.features import FeatureExtractor
from widefield.inference.splits import TrainTest
from widefield.probes.features import DictionaryFeatures
from widefield.probes.floors import best, constant_outcomes, floors
from widefield.probes.outcome import Outcome
from widefield.probes.score import score
from widefield.probes.untrained import untrained_floor

ExtractorPair = tuple[FeatureExtractor, FeatureExtractor | None]
"""An encoder, and the same with its wide readout if it has one."""


def wide_of(extractor: FeatureExtractor, train: Dataset) -> FeatureExtractor | None:
    """Return the extractor of wide features beside one of pooled ones; None without stages."""
    if extractor.kind != "pooled":
        return None
    wide = replace(extractor, kind="wide", or_pooled=True).with_readout(train)
    return wide if wide.kind == "wide" else None


def untrained_extractors(extractor: FeatureExtractor, train: Dataset) -> Iterator[ExtractorPair]:
    """Yield the networks of the untrained floor, with their wide readouts."""
    starts = extractor.untrained_encoders(train.images)
    for network in untrained_floor(starts, train.images, device=choose_device("auto")):
        pooled = FeatureExtractor(name="random", encoder=network.pooled)
        yield pooled, None if network.wide is None else replace(pooled, encoder=network.wide)


def dictionary_extractor(train: Dataset) -> FeatureExtractor:
    """Return the extractor of a dictionary of patches of the training examples."""
    return FeatureExtractor(name="dictionary", encoder=DictionaryFeatures.of(train.inputs))


def score_floors(
    extractor: FeatureExtractor, data: TrainTest, seed: int
) -> dict[str, dict[str, Outcome]]:
    """Return task -> floor -> outcome, of the better of pooled and wide features."""

    def better(pair: ExtractorPair) -> dict[str, Outcome]:
        return best(filter(None, score_pair(pair, data, seed, with_knn=False)))

    return floors(
        better,
        pixels=(FeatureExtractor(name="pixels"), None),
        untrained=untrained_extractors(extractor, data.train),
        dictionary=(dictionary_extractor(data.train), None),
        constant=constant_outcomes(data.train, data.test),
    )


def score_pair(
    pair: ExtractorPair, data: TrainTest, seed: int, *, with_knn: bool = True
) -> tuple[dict[str, Outcome], dict[str, Outcome]]:
    """Score the best probes on the features of an encoder, and on wide ones if there are any.

    The encoder passes once over the images for both. Of wide features kNN is left out.
    """
    (encoder, wide), datasets = pair, (data.train, data.test)

    def evaluate(h: list[Tensor], pooled: int | None, *, with_knn: bool) -> dict[str, Outcome]:
        x, test_x = h
        return score(x, data.train, test_x, data.test, pooled=pooled, with_knn=with_knn, seed=seed)

    if wide is None:
        h = [encoder.probe_features(half.inputs) for half in datasets]
        return evaluate(h, encoder.pooled, with_knn=with_knn), {}
    module = wide.build(data.train.images)
    assert isinstance(module, Wide)
    dim = module.readout.config.pooled
    both = FeatureExtractor(name=encoder.name, encoder=_PooledAndWide(module))
    h = [both.features(half.inputs) for half in datasets]
    pooled = evaluate([x[:, :dim] for x in h], None, with_knn=with_knn)
    return pooled, evaluate([x[:, dim:] for x in h], dim, with_knn=False)


class _PooledAndWide(nn.Module):
    """An encoder with a wide readout: x[B, C, H, W] -> its pooled features, then the wide ones."""

    def __init__(self, wide: Wide) -> None:
        super().__init__()
        self.wide = wide

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(self.wide.with_pooled(x), dim=1)
