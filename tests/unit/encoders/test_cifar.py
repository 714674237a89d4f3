"""AlexNet and Wide-ResNet 34-5, held against their papers' descriptions, counted by hand."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from widefield.core.form import InputSpec
from widefield.encoders import (
    build_encoder,
    cifar,
    encoder_config,
    load_encoder,
    save_encoder,
    timm_snippet,
    untrained_like,
)
from widefield.encoders.cifar import AlexNet, WideBlock, WideResNet
from widefield.metrics.firing import firing_rates

NAMES = ("alexnet", "wide-resnet-34-5")
# AlexNet: k x k kernels times widths, and biases.
ALEXNET = (
    (9 * 3 + 1) * 96
    + (25 * 96 + 1) * 256
    + (9 * 256 + 1) * 384
    + (9 * 384 + 1) * 384
    + (9 * 384 + 1) * 256
)
# A block of width w after width v: two convolutions, and a gain and a shift for each of its inputs.
FIRST = {(v, w): 9 * v * w + 9 * w * w + v * w + 2 * (v + w) for v, w in ((16, 80), (80, 160))}
FIRST[160, 320] = 9 * 160 * 320 + 9 * 320 * 320 + 160 * 320 + 2 * (160 + 320)
OTHER = {w: 2 * 9 * w * w + 2 * (w + w) for w in (80, 160, 320)}
WIDE_RESNET = 9 * 3 * 16 + sum(FIRST.values()) + 4 * sum(OTHER.values()) + 2 * 320


def images(side: int = 32, channels: int = 3) -> Tensor:
    return torch.rand(4, channels, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "count", "stated"),
    [("alexnet", ALEXNET, 3_714_944), ("wide-resnet-34-5", WIDE_RESNET, 11_550_864)],
)
def test_parameters_are_as_many_as_by_hand(name: str, count: int, stated: int) -> None:
    encoder = build_encoder(name, seed=0)
    assert sum(p.numel() for p in encoder.parameters()) == count == stated


def test_alexnets_layers_have_the_published_order_and_the_stated_sizes() -> None:
    layers = AlexNet(3).layers
    first = ("conv1", "relu1", "norm1", "pool1", "conv2", "relu2", "norm2", "pool2")
    rest = ("conv3", "relu3", "conv4", "relu4", "conv5", "relu5", "pool5")
    assert tuple(dict(layers.named_children())) == first + rest
    sizes, x = {}, images()
    for name, layer in layers.named_children():
        x = layer(x)
        sizes[name] = tuple(x.shape[1:])
    assert [sizes[f"conv{k}"] for k in range(1, 6)] == [
        (96, 32, 32),
        (256, 16, 16),
        (384, 8, 8),
        (384, 8, 8),
        (256, 8, 8),
    ]
    assert sizes["pool5"] == (256, 4, 4)


def test_response_normalization_is_the_papers() -> None:
    """b_i = a_i / (2 + 1e-4 sum of a_j^2 over the 5 nearest channels)^0.75, section 3.3."""
    a = 30 * images(3, channels=9)
    b = AlexNet(3).layers.norm1(a)
    for i in range(9):
        near = a[:, max(0, i - 2) : i + 3].square().sum(1)
        torch.testing.assert_close(b[:, i], a[:, i] / (2 + 1e-4 * near) ** 0.75)


def test_a_wide_resnet_has_34_layers_with_weights_and_halves_the_sides_twice() -> None:
    network = WideResNet(3)
    kernels = [m.kernel_size for m in network.modules() if isinstance(m, nn.Conv2d)]
    # The 34th is the classifier's; shortcuts of kernel 1 are not counted, as in the paper.
    assert (kernels.count((3, 3)), kernels.count((1, 1))) == (1 + 2 * 15, 3)
    x = network.conv1(images())
    sides = []
    for group in (network.group1, network.group2, network.group3):
        x = group(x)
        sides.append(tuple(x.shape[1:]))
    assert sides == [(80, 32, 32), (160, 16, 16), (320, 8, 8)]


def test_a_block_without_a_change_of_width_adds_to_its_input() -> None:
    block = WideBlock(8, 8, stride=1).eval()
    nn.init.zeros_(block.conv2.weight)
    x = images(channels=8)
    assert torch.equal(block(x), x)
    assert WideBlock(8, 16, stride=2).shortcut is not None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", [8, 45])
def test_images_of_any_size_and_channels_are_taken(name: str, side: int) -> None:
    encoder = build_encoder(name, channels=4, image_size=side, seed=0).eval()
    assert encoder(images(side, 4)).shape == (4, encoder.dim)


@pytest.mark.parametrize("name", NAMES)
def test_features_of_new_weights_tell_images_apart(name: str) -> None:
    h = build_encoder(name, seed=0)(images())
    direction = nn.functional.normalize(h - h.mean(0), dim=1)
    assert h.std(0).mean() > 1e-3
    assert (direction @ direction.T - torch.eye(4)).max() < 0.9


@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_one_is_the_saved_one(
    name: str, in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wide residual network has one block in each group: others would be stored alike."""
    monkeypatch.setattr(cifar, "_group", WideBlock)
    encoder = build_encoder(name, mean=(0.1, 0.5, 0.7), std=(0.2, 0.25, 0.5), seed=3)
    encoder(images())
    save_encoder(encoder.eval(), in_tmp)
    loaded = load_encoder(in_tmp).eval()
    assert loaded.config == encoder.config
    assert torch.equal(loaded(images()), encoder(images()))
    names: dict[str, nn.Module] = {}
    exec(timm_snippet(encoder.config), names)
    assert torch.equal(names["model"](images()), encoder(images()))
    fresh = untrained_like(encoder, seed=5)
    assert fresh.state_dict().keys() == encoder.state_dict().keys()
    assert not torch.equal(fresh(images()), encoder(images()))


@pytest.mark.parametrize("name", NAMES)
def test_their_only_stem_is_called_native(name: str) -> None:
    assert (
        encoder_config(name).stem == encoder_config(name, InputSpec(image_size=96)).stem == "native"
    )
    with pytest.raises(ValueError, match="has one stem, for all images"):
        encoder_config(name, stem="small")


def test_the_firing_of_alexnets_layers_can_be_watched() -> None:
    rates = firing_rates(build_encoder("alexnet", seed=0), images())
    assert list(rates) == [f"backbone.layers.relu{k}" for k in range(1, 6)]
