"""The untrained floor: its networks, the statistics of the data, and their wide readouts."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.probes import wide as wide_file
from widefield.probes.compare import compare_with_baseline
from widefield.probes.untrained import keeps_statistics, untrained_floor, with_data_statistics
from widefield.probes.wide import wide_or_none
from widefield.workflows.probe_scores import untrained_extractors

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
    data = open_dataset("photos", max_examples=100, image_size=16)
    untrained = build_encoder("resnet-tiny", image_size=16, seed=seed)
    encoder = with_data_statistics(untrained, data.images, device=CPU)
    found = compare_with_baseline(encoder, data, seed=seed, device=CPU)
    assert found is not None
    assert found.verdict != "better"
    assert found.linear["class"].difference <= 0


def test_the_floor_has_every_start_and_the_first_one_with_statistics() -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)
    starts = [network(), network()]
    floor = untrained_floor(starts, images, device=CPU)
    assert [(u.start, u.with_statistics) for u in floor] == [
        (starts[0], False),
        (starts[1], False),
        (starts[0], True),
    ]
    assert floor[0].pooled is starts[0]
    adapted = with_data_statistics(starts[0], images, device=CPU)
    assert torch.equal(floor[2].pooled.state_dict()["1.running_mean"], adapted[1].running_mean)
    for few in (
        untrained_floor(starts, images[:1], device=CPU),
        untrained_floor([nn.Flatten()], images, device=CPU),
    ):
        assert not any(u.with_statistics for u in few)


def test_wide_floors_name_their_pooled_columns() -> None:
    """A probe of wide features scales the others apart from these."""
    data = open_dataset("photos", max_examples=24, image_size=16)
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    for pooled, wide in untrained_extractors(open_encoder(encoder), data):
        assert pooled.pooled is None
        assert pooled.features(data.images).shape == (24, encoder.dim)
        assert wide is not None
        assert wide.pooled == encoder.dim < wide.features(data.images).shape[1]


def test_a_readout_sees_examples_that_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half is black; fitted on it alone, the input would have no directions."""
    monkeypatch.setattr(wide_file, "_UNTRAINED_EXAMPLES", 40)
    images = np.zeros((80, 16, 16, 3), dtype=np.uint8)
    images[40:] = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3))
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0).eval()
    found, of_first_half = (
        wide_or_none(encoder, half, device=CPU) for half in (images, images[:40])
    )
    assert found is not None
    assert found.readout.directions("input@32").abs().max() > 0
    assert of_first_half is not None  # the control arm
    assert of_first_half.readout.directions("input@32").abs().max() == 0
