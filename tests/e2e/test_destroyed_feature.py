"""A module that destroys a feature on purpose is audited as a user would, with arrays of labels.

Images are tinted by `tint`, and one of their halves is darker by `half`. The first layer may remove
all color, or the last one all that a linear probe could use of it.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import widefield
from widefield.audits import bounds
from widefield.audits.result import Audit


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CEILING_STEPS", 12)


@cache
def labeled() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    tint, half = rng.integers(3, size=500), rng.integers(2, size=500)
    x = rng.integers(80, 160, size=(500, 16, 16, 1)) + np.zeros((1, 1, 1, 3), int)
    x[half == 1, :8] -= 40
    x += 20 * (3 * np.eye(3, dtype=int)[tint] - 1)[:, None, None]  # of mean 0 over channels
    return {"x": x.astype(np.uint8), "tint": tint, "half": half}


class Network(nn.Module):
    """A small network; its layers keep everything until weights are set."""

    def __init__(self) -> None:
        super().__init__()
        self.color = nn.Conv2d(3, 3, 1)
        self.stages = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 24, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.last = nn.Linear(96, 96)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.pool(self.stages(self.color(x))))


def network(destroyed: str) -> Network:
    torch.manual_seed(0)
    module = Network().eval()
    with torch.no_grad():
        weight = torch.full((3, 3), 1 / 3) if destroyed == "first" else torch.eye(3)
        module.color.weight.copy_(weight[..., None, None])
        module.color.bias.zero_()
        module.last.weight.copy_(torch.eye(96))
        module.last.bias.zero_()
        if destroyed == "last":
            _erase_tint(module)
    return module


def _erase_tint(module: Network) -> None:
    """Set the last layer to the projection that leaves no covariance with `tint` (LEACE)."""
    data = labeled()
    h = module(torch.from_numpy(data["x"]).permute(0, 3, 1, 2) / 255).double()
    centered = h - h.mean(0)
    one_hot = torch.eye(3, dtype=torch.double)[torch.from_numpy(data["tint"])]
    classes = centered.T @ (one_hot - one_hot.mean(0)) / len(h)
    inverse = torch.linalg.pinv(centered.T @ centered / len(h), rtol=1e-9, hermitian=True)
    removed = inverse @ classes @ torch.linalg.pinv(classes.T @ inverse @ classes, rtol=1e-6)
    removed = removed @ classes.T
    module.last.weight.copy_((torch.eye(96) - removed).T)
    module.last.bias.copy_(h.mean(0) @ removed)


@cache
def audited(destroyed: str, cache_folder: Path) -> Audit:
    return widefield.audit(network(destroyed), labeled(), cache=cache_folder, quiet=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("destroyed")


@pytest.mark.parametrize(
    ("destroyed", "verdict"), [("first", "lost"), ("last", "hidden"), ("nothing", "easy")]
)
def test_a_feature_that_a_layer_destroys_is_lost_or_hidden(
    destroyed: str, verdict: str, folder: Path
) -> None:
    found = audited(destroyed, folder)
    assert found.tasks["tint"].verdict == verdict, found.tasks["tint"].line()
    assert found.tasks["half"].verdict == "easy"  # the other feature stays in all of them
    assert f"tint: {verdict}; " in found.tasks["tint"].line()
    before = found.tasks["tint"].best_stage
    assert before is not None
    kept = found.tasks["tint"].stages[before]
    assert kept["untrained"] > 0.95
    assert (kept["accuracy"] > 0.95) == (verdict != "lost")
