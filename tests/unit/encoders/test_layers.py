"""Layers cover every parameter once, in the order of the computation."""

import pytest
from torch import nn

from widefield.encoders import build_encoder, layer_names


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("resnet-tiny", 5),
        ("vit_tiny_patch16_224", 13),
        ("alexnet", 1),
        ("wide-resnet-34-5", 4),
        ("torchvision:mobilenet_v2", 1),
        ("convnext_atto", 13),
    ],
)
def test_every_parameter_has_one_layer(name: str, layers: int) -> None:
    encoder = build_encoder(name, image_size=32, seed=0)
    found = layer_names(encoder)
    assert len(found) == layers
    assert sorted(n for names in found for n in names) == sorted(
        n for n, _ in encoder.named_parameters()
    )


def test_a_network_that_says_nothing_is_taken_child_by_child() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2, bias=False))
    assert layer_names(module) == [["0.weight", "0.bias"], ["2.weight"]]
