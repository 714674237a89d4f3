"""Floors and ceilings: how many untrained encoders are drawn, and which are kept for whom."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.audits import audit as module
from widefield.audits import bounds as bounds_module
from widefield.audits import planting
from widefield.audits.bounds import DRAWS, Bounds, graded_bounds
from widefield.audits.planting import audit_training
from widefield.audits.probing import probe_tasks
from widefield.encoders import build_encoder
from widefield.workflows.extractor import encode, open_encoder
from widefield.workflows.train_test import open_train_test


@pytest.mark.parametrize(("first", "draws"), [("unclear", [1, 3]), ("learned", [1])])
def test_more_draws_are_taken_where_a_verdict_is_unclear(
    first: str, draws: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def measure(*_: Any, draws: int, **__: Any) -> Bounds:
        asked.append(draws)
        return Bounds(floors={}, ceiling={})

    def judge(*_: Any, **__: Any) -> dict[str, Any]:
        return {"kind": SimpleNamespace(verdict=first if len(asked) == 1 else "weakened")}

    monkeypatch.setattr(module, "measure_bounds", measure)
    monkeypatch.setattr(module, "audit_tasks", judge)
    data: Any = SimpleNamespace(train=SimpleNamespace(labels={"kind": np.zeros(3)}))
    extractor: Any = None
    auditor = module._Auditor(extractor, data, cache=None, seed=0, quiet=True)
    _, tasks = auditor.judged(extractor)
    assert asked == draws
    assert tasks["kind"].verdict == ("weakened" if first == "unclear" else first)


def test_both_short_pretrainings_are_held_against_all_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def measure(*_: Any, draws: int = 1, **__: Any) -> Bounds:
        asked.append(draws)
        return Bounds(floors={}, ceiling={})

    monkeypatch.setattr(planting, "measure_bounds", measure)
    monkeypatch.setattr(planting, "audit_tasks", lambda *_, **__: {"seen": None})
    monkeypatch.setattr(
        planting, "_pretrained", lambda *_: build_encoder("resnet-tiny", image_size=32, seed=0)
    )
    extractor = open_encoder("random")
    images = np.random.default_rng(0).integers(0, 256, (80, 32, 32, 3), dtype=np.uint8)
    data = open_train_test(extractor, {"x": images, "kind": np.arange(80) % 2}, limit=None, seed=0)
    found = audit_training(
        extractor, data, "shapes", "simclr", cache=tmp_path, seed=0, say=lambda text: None
    )
    assert asked == [DRAWS] * 4  # the data's task and the plant, after either training
    assert found.without == found.planted == {"seen": None}


def test_the_untrained_floor_is_the_best_of_all_starts_and_draws(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds_module, "train_supervised", lambda encoder, *_, **__: encoder)
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=120)
    images = rng.integers(0, 60, size=(120, 16, 16, 3)) + 25 * kind[:, None, None, None]
    extractor = open_encoder("random")
    data = open_train_test(
        extractor, {"x": images.astype(np.uint8), "kind": kind}, limit=None, seed=0
    )
    (found,) = graded_bounds(
        extractor, [data], cache=tmp_path, seed=0, say=lambda text: None, draws=2
    )
    every = [
        probe_tasks(lambda images, start=start: encode(start, images), data, seed=0)["kind"]
        for draw in range(2)
        for start in extractor.untrained_starts(data.train.images[:2], seed=1 + draw)
    ]
    assert len(every) == 4
    best = max(result.accuracy for result in every)
    assert found.floors["random"]["kind"].accuracy == best
    assert found.floors["majority"]["kind"].accuracy == np.mean(
        data.test.labels["kind"] == np.bincount(data.train.labels["kind"]).argmax()
    )


class Pooled(nn.Module):
    """Mean colours, seen by a code that its name and its shapes do not tell."""

    def __init__(self, code: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.code = code

    def forward(self, x: Tensor) -> Tensor:
        return self.code(x.mean((2, 3)))


def test_modules_of_other_code_do_not_share_floors_and_ceilings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds_module, "train_supervised", lambda encoder, *_, **__: encoder)
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), dtype=np.uint8)
    data = open_train_test(
        open_encoder("pixels"), {"x": images, "kind": np.arange(80) % 2}, limit=None, seed=0
    )

    def kept(module: nn.Module) -> list[str]:
        options: dict[str, Any] = {"cache": tmp_path, "seed": 0, "say": lambda text: None}
        graded_bounds(open_encoder(module), [data], **options)
        return sorted(path.name.split("-")[0] for path in tmp_path.iterdir())

    one = ["ceiling", "pixels", "random"]
    assert kept(Pooled(torch.sin)) == kept(Pooled(torch.sin)) == one
    assert kept(Pooled(torch.cos)) == sorted([*one, "ceiling", "random"])
