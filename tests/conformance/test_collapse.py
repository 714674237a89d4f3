"""Collapse is visible: SimSiam without its stop-gradient, and what the health line says."""

import pytest
import torch
from torch import nn

from widefield.data import open_dataset
from widefield.methods import ProjectorConfig, SimSiam, SimSiamConfig
from widefield.metrics import health
from widefield.probes import extract
from widefield.views import build_views


def small_encoder() -> nn.Sequential:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 5, 2), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )


@pytest.mark.parametrize(("stop_gradient", "verdict"), [(True, "healthy"), (False, "collapsed")])
def test_simsiam_collapses_without_its_stop_gradient(stop_gradient: bool, verdict: str) -> None:
    """Without a projector, in which a collapse could hide from the features."""
    data = open_dataset("photos", max_examples=128, image_size=16)
    x = torch.from_numpy(data.images).permute(0, 3, 1, 2) / 255
    generator, views = torch.Generator().manual_seed(0), build_views("expert")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = small_encoder()
        config = SimSiamConfig(
            projector=ProjectorConfig(layers=0, batch_norm=False), predictor_width=32
        )
        method = SimSiam(32, config, stop_gradient=stop_gradient)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *method.parameters()], lr=0.02)
    for _ in range(300):
        index = torch.randperm(len(x), generator=generator)[:32]
        loss = method(encoder, views(x[index], 2, generator), index)
        loss.total.backward()
        optimizer.step()
        optimizer.zero_grad()
    found = health(extract(encoder, data.images))
    assert found.verdict == verdict, found.line()
    spread = float(loss.parts["projection_std"])
    assert spread > 0.4 if stop_gradient else spread < 0.02
