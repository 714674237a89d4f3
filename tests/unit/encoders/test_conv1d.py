"""The encoder over time: widths, the shortest window, files, and what it refuses."""

import pytest
import torch

from widefield.encoders import build_encoder


@pytest.mark.parametrize(("channels", "steps"), [(1, 16), (6, 128), (3, 1000), (1, 16_000)])
def test_width_and_feature_map(channels: int, steps: int) -> None:
    encoder = build_encoder("conv1d", channels=channels, image_size=(1, steps), seed=0).eval()
    x = torch.randn(2, channels, 1, steps, generator=torch.Generator().manual_seed(0))
    assert encoder(x).shape == (2, encoder.dim) == (2, 256)
    feature_map = encoder.feature_map(x)
    assert feature_map.shape[:3] == (2, 256, 1)
    assert feature_map.shape[3] <= 2048 // 16
    torch.testing.assert_close(feature_map.mean((2, 3)), encoder(x))


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("conv1d", (32, 32), "name another encoder"),
        ("conv1d", (1, 8), "16 steps or more"),
        ("resnet-tiny", (1, 128), "choose encoder 'conv1d'"),
        ("alexnet", (1, 128), "choose encoder 'conv1d'"),
    ],
)
def test_other_examples_are_refused(name: str, size: tuple[int, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_encoder(name, image_size=size, seed=0)
