"""BatchNorm statistics of the data: against a formula, and as a floor of untrained runs."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.probes.compare import compare_with_baseline
from widefield.probes.untrained import keeps_statistics, with_data_statistics

CPU = torch.device("cpu")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.Dropout(),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ).eval()


@pytest.mark.parametrize("count", [2, 250, 251])
def test_mean_and_variance_are_those_of_the_convolution_of_all_images(count: int) -> None:
    images = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    original = network()
    state, random_state = copy.deepcopy(original.state_dict()), torch.get_rng_state()
    found = with_data_statistics(original, images, device=CPU)
    assert torch.equal(torch.get_rng_state(), random_state)
    parts = [images] if count <= 250 else [images[0::2], images[1::2]]
    maps = [original[0](torch.from_numpy(x).permute(0, 3, 1, 2) / 255) for x in parts]
    channels = [x.transpose(0, 1).flatten(1) for x in maps]
    mean, variance = (
        torch.stack(values).mean(0)
        for values in ([x.mean(1) for x in channels], [x.var(1) for x in channels])
    )
    torch.testing.assert_close(found[1].running_mean, mean)
    torch.testing.assert_close(found[1].running_var, variance)
    assert not any(layer.training for layer in found.modules())
    assert found[1].momentum == original[1].momentum == 0.1
    for key, value in original.state_dict().items():
        assert torch.equal(value, state[key])
        assert "running" in key or "tracked" in key or torch.equal(found.state_dict()[key], value)


def test_only_networks_with_statistics_have_any() -> None:
    assert keeps_statistics(network())
    assert not keeps_statistics(nn.Sequential(network()[0], network()[3]))
    assert keeps_statistics(build_encoder("resnet-tiny", seed=0))
    assert not keeps_statistics(nn.LayerNorm(4))


@pytest.mark.parametrize("seed", [0, 2])
def test_new_statistics_alone_are_not_above_the_untrained_network(seed: int) -> None:
    """The control of the comparison: what a run at a learning rate of 0 leaves."""
    data = open_dataset("photos", max_examples=256, image_size=16)
    untrained = build_encoder("resnet-tiny", image_size=16, seed=seed)
    encoder = with_data_statistics(untrained, data.images, device=CPU)
    found = compare_with_baseline(encoder, data, seed=seed, device=CPU)
    assert found is not None
    assert found.verdict != "better"
    assert found.linear["class"].difference <= 0
