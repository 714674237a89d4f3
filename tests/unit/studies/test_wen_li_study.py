"""The measures of Wen and Li's figures, on encoders of which the answer is known."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from studies import seen, wen_li
from studies.packs import generated
from studies.study import TINY
from studies.trained import Trained
from widefield.encoders import build_encoder


class Known(nn.Module):
    """An encoder of one feature."""

    def __init__(self, feature: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.feature = feature

    def forward(self, x: Tensor) -> Tensor:
        return self.feature(x)[:, None]


def redness(x: Tensor) -> Tensor:
    return x[:, 0].mean((1, 2)) - x[:, 2].mean((1, 2))


def step(x: Tensor) -> Tensor:
    return x[..., 8:].mean((1, 2, 3)) - x[..., :8].mean((1, 2, 3))


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    packs = generated(Path(tmp_path_factory.mktemp("packs")))
    return Trained(wen_li.UNTRAINED, TINY, packs, 0, None)


def with_encoder(trained: Trained, encoder: nn.Module) -> Trained:
    copy = replace(trained)
    copy.__dict__["encoder"] = encoder  # in place of the cached one
    return copy


def test_a_neuron_of_color_and_one_of_shape_are_told_apart(untrained: Trained) -> None:
    color = seen.neurons(with_encoder(untrained, Known(redness)))
    shape = seen.neurons(with_encoder(untrained, Known(step)))
    assert color[seen.GRAY] < 10
    assert color[seen.UNIFORM] > 90
    assert shape[seen.GRAY] > 90
    assert shape[seen.UNIFORM] < 10
    assert color[seen.COLORFUL] > 2 * shape[seen.COLORFUL]
    assert color[seen.CLEAR_SHARE] == shape[seen.CLEAR_SHARE] == 100


def test_neurons_without_a_clear_image_are_counted(untrained: Trained) -> None:
    blind = Known(lambda x: (x.detach()[:, 0, 0, 0] - 0.5).abs())  # no gradient: it stays noise
    assert seen.neurons(with_encoder(untrained, blind))[seen.CLEAR_SHARE] == 0


def test_color_is_read_off_features_that_have_it_and_not_off_others() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 3, 1, 1, generator=generator).expand(-1, 3, 4, 4)
    other = torch.randn(200, 6, generator=generator)
    has = torch.cat([x.mean((2, 3)) @ torch.randn(3, 3, generator=generator), other], dim=1)
    assert seen.color_r2(has[:150], x[:150], has[150:], x[150:]) > 0.95
    assert seen.color_r2(other[:150], x[:150], other[150:], x[150:]) < 0.1
    gray = x.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    assert seen.chroma(gray).abs().max() < 1e-6


def test_rates_are_those_of_the_named_layers(untrained: Trained) -> None:
    encoder = build_encoder("alexnet", seed=0)
    convolution = encoder.get_submodule("backbone.layers.conv4")
    assert isinstance(convolution, nn.Conv2d)
    assert convolution.bias is not None
    nn.init.constant_(convolution.bias, -1e3)
    measured = seen.firing(with_encoder(untrained, encoder))
    assert measured["layer 4, %"] == measured["layer 5, %"] == 0
    assert measured["layer 3, %"] > 20
    layers = [measured[f"layer {k}, %"] for k in seen.LAYERS]
    assert measured[seen.RATE] == pytest.approx(sum(layers) / 4, abs=0.01)


def test_findings_compare_the_arms_that_their_criteria_name() -> None:
    findings = {f.id: f for study in wen_li.STUDIES for f in study.findings}

    def value(name: str, measure: str, **arms: float) -> float:
        runs: dict[str, Any] = {arm.replace("_", "+"): {measure: v} for arm, v in arms.items()}
        return findings[name].value(runs)

    assert value("FL-F1 supervised", seen.COLORFUL, supervised=6, crop_color=4) == 50
    assert value("FL-F2 crop", seen.COLORFUL, crop=3, crop_color=4) == -25
    assert value("FL-M3", seen.R2, crop=0.9, crop_color=0.5) == pytest.approx(0.4)
    layers = {f"layer {k}, %": 10.0 * k for k in seen.LAYERS}
    sparser = {name: rate - (8 if name == "layer 3, %" else 9) for name, rate in layers.items()}
    assert findings["FL-F4 color"].value({"crop": layers, "crop+color": sparser}) == 8
    assert value("FL-M2", seen.R2, crop=0.9, untrained=0.5) == pytest.approx(0.4)
    rates = {"crop": 50, "crop+color": 30, "supervised, crop": 20, "supervised, crop+color": 45}
    runs = {arm: {seen.RATE: rate} for arm, rate in rates.items()}
    assert findings["FL-F4 supervised"].value(runs) == 5
