"""What an audit shows to diagnostics of views: the same views to every encoder, of any kind."""

import numpy as np
import pytest
import torch
from torch import nn

from widefield.audits.pictures import MAX_EXAMPLES, VIEW_COUNT, view_features
from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder


def raw(kind: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    if kind == "images":
        return {"x": rng.integers(0, 256, (5, 16, 16, 3)).astype(np.uint8)}
    if kind == "windows":
        return {"windows": rng.normal(size=(5, 3, 64)).astype(np.float32)}
    return {
        "sounds": rng.integers(-9000, 9000, (5, 8000)).astype(np.int16),
        "sample_rate": np.array(8000),
    }


@pytest.mark.parametrize("kind", ["images", "windows"])
def test_each_example_has_its_views(kind: str) -> None:
    data = open_dataset(raw(kind))
    assert data.kind == kind
    extractor = open_encoder(nn.Sequential(nn.Flatten()))
    h = view_features(extractor, data, seed=0)
    assert h.shape == (5, VIEW_COUNT, data.images[0].size)
    assert h.isfinite().all()
    assert not torch.equal(h[:, 0], h[:, 1])
    assert torch.equal(h, view_features(extractor, data, seed=0))
    assert not torch.equal(h, view_features(extractor, data, seed=1))


def test_sounds_are_seen_as_their_spectrograms() -> None:
    data = open_dataset(raw("sounds"))
    encoder = build_encoder(
        "resnet-tiny", channels=1, image_size=data.images.shape[1:3], rate=data.rate, seed=0
    )
    h = view_features(open_encoder(encoder), data, seed=0)
    assert h.shape == (5, VIEW_COUNT, encoder.dim)
    assert h.isfinite().all()
    wide = open_encoder(encoder, "wide").with_readout(data)
    assert wide.readout is not None
    assert view_features(wide, data, seed=0).shape == (5, VIEW_COUNT, wide.readout.dim)


def test_many_examples_are_thinned_out_and_the_encoder_stays_as_it_was() -> None:
    data = open_dataset("photos", max_examples=MAX_EXAMPLES + 40, image_size=16)
    encoder = nn.Sequential(nn.BatchNorm2d(3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).train()
    assert view_features(open_encoder(encoder), data, seed=0).shape == (
        MAX_EXAMPLES,
        VIEW_COUNT,
        3,
    )
    assert encoder.training
    assert int(encoder[0].num_batches_tracked) == 0
