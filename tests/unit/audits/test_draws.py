"""Floors and ceilings: how many untrained encoders are drawn, and which are kept for whom."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.audits import audit as module
from widefield.audits import bounds as bounds_module
from widefield.audits import tasks as tasks_module
from widefield.audits.bounds import (
    AuditOptions,
    Bounds,
    check_trainable,
    graded_bounds,
    probe_tasks,
    train_supervised,
)
from widefield.audits.tasks import Reference, audit_grades
from widefield.data import Dataset, Loader, open_dataset
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.inference.splits import open_train_test
from widefield.probes import extract

OPTIONS = AuditOptions(cache=None, seed=0, quiet=True)


@pytest.mark.parametrize("grades", [1, 3])
@pytest.mark.parametrize(("first", "draws"), [("unclear", [1, 3]), ("learned", [1])])
def test_more_draws_are_taken_where_a_verdict_is_unclear(
    first: str, draws: list[int], grades: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task, and of all grades of a plant if one is unclear."""
    asked: list[int] = []

    def measure(*_: Any, num_seeds: int, **__: Any) -> list[dict[str, Any]]:
        asked.append(num_seeds)
        return [{}] * grades

    def judge(_: Any, reference: Reference) -> dict[str, Any]:
        is_first = len(asked) == 1 and reference.data is data[0]
        return {"kind": SimpleNamespace(verdict=first if is_first else "weakened")}

    monkeypatch.setattr(tasks_module, "graded_bounds", measure)
    monkeypatch.setattr(tasks_module, "_audit_against", judge)
    monkeypatch.setattr(tasks_module, "_untrained_stages", lambda *_, **__: {})
    data: Any = [SimpleNamespace(tasks=("kind",), only=lambda *_: None) for _ in range(grades)]
    extractor: Any = None
    found = [tasks["kind"] for _, tasks in audit_grades(extractor, data, OPTIONS)]
    assert asked == draws
    assert found[0].verdict == ("weakened" if first == "unclear" else first)
    assert len(found) == grades


def test_the_untrained_floor_is_the_best_of_all_starts_and_draws(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds_module, "train_supervised", lambda encoder, *_, **__: encoder)
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=120)
    images = rng.integers(0, 60, size=(120, 16, 16, 3)) + 25 * kind[:, None, None, None]
    extractor = open_encoder("random")
    data = open_train_test(
        extractor, {"x": images.astype(np.uint8), "kind": kind}, max_examples=None, seed=0
    )
    options = replace(OPTIONS, cache=tmp_path)
    ((found,),) = (by.values() for by in graded_bounds(extractor, [data], options, num_seeds=2))
    every = [
        probe_tasks(lambda images, start=start: extract(start, images), data, seed=0)["kind"]
        for draw in range(2)
        for start in extractor.untrained_encoders(data.train.images[:2], seed=1 + draw)
    ]
    assert len(every) == 4
    # The first draw of each also has its wide features, and the very first the data's statistics.
    assert len([path for path in tmp_path.iterdir() if "random" in path.name]) == 4 + 2 + 2
    best = max(result.value for result in every)
    assert found.floors["random"].value == best
    assert found.floors["majority"].value == np.mean(
        data.test.labels["kind"] == np.bincount(data.train.labels["kind"]).argmax()
    )


class Pooled(nn.Module):
    """Mean colors, seen by a code that its name and its shapes do not tell."""

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
        open_encoder("pixels"), {"x": images, "kind": np.arange(80) % 2}, max_examples=None, seed=0
    )

    def kept(module: nn.Module) -> list[str]:
        graded_bounds(open_encoder(module), [data], replace(OPTIONS, cache=tmp_path))
        return sorted(path.name.split("-")[0] for path in tmp_path.iterdir())

    one = ["ceiling", "dictionary", "pixels", "random"]
    assert kept(Pooled(torch.sin)) == kept(Pooled(torch.sin)) == one
    assert kept(Pooled(torch.cos)) == sorted([*one, "ceiling", "random"])


def test_all_tasks_have_the_floors_that_each_has_alone_and_one_fit_of_the_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds_module, "train_supervised", lambda encoder, *_, **__: encoder)
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 3), dtype=np.uint8)
    labels = {"one": np.arange(80) % 2, "two": np.arange(80) // 7 % 3}
    module = Pooled(torch.sin)
    data = open_train_test(open_encoder(module), {"x": images, **labels}, max_examples=None, seed=0)
    probed: list[tuple[str, ...]] = []

    def probe(features: Any, data: Any, **options: Any) -> Any:
        probed.append(data.tasks)
        return probe_tasks(features, data, **options)

    def bounds(*names: str) -> dict[str, Bounds]:
        options = replace(OPTIONS, cache=tmp_path / "-".join(names))
        (found,) = graded_bounds(open_encoder(module), [data.only(*names)], options)
        return found

    monkeypatch.setattr(bounds_module, "probe_tasks", probe)
    together = bounds("one", "two")
    assert probed == [("one", "two")] * 3 + [("one",), ("two",)]  # floors, then ceilings
    for task in ("one", "two"):
        alone = bounds(task)[task]
        assert together[task].floors.keys() == alone.floors.keys()
        for name, floor in alone.floors.items():
            np.testing.assert_array_equal(floor.values, together[task].floors[name].values)


def test_a_ceiling_is_trained_on_every_class_of_many_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Dataset] = []

    def loader(dataset: Dataset, **_: Any) -> Loader:
        seen.append(dataset)
        raise InterruptedError

    monkeypatch.setattr(bounds_module, "CEILING_STEPS", 8)
    monkeypatch.setattr(bounds_module, "Loader", loader)
    kind = np.arange(1024) % 2  # as every second example of 1,024 would be of one kind
    data = open_dataset({"x": np.zeros((1024, 8, 8, 3), np.uint8), "kind": kind})
    with pytest.raises(InterruptedError):
        train_supervised(nn.Flatten(), data, seed=0)
    assert len(seen[0]) == 512
    assert np.bincount(seen[0].labels["kind"], minlength=2).min() > 128


def some_data(n: int = 80) -> dict[str, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)
    return {"x": images, "kind": np.arange(n) % 2}


def test_a_ceiling_may_have_a_single_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many examples as the steps use: the warm-up is shorter than the run."""
    monkeypatch.setattr(bounds_module, "CEILING_STEPS", 2)
    encoder = build_encoder("resnet-tiny", image_size=8, seed=0)
    before = encoder.backbone.state_dict()["conv1.weight"].clone()
    seen: list[tuple[int, int]] = []
    train_supervised(
        encoder, open_dataset(some_data(128)), seed=0, progress=lambda *steps: seen.append(steps)
    )
    assert seen == [(1, 2), (2, 2)]
    assert not torch.equal(before, encoder.backbone.state_dict()["conv1.weight"])


def test_the_ceiling_of_a_module_that_was_frozen_for_use_is_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds_module, "CEILING_STEPS", 4)
    module = nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).requires_grad_(False)
    images = some_data()["x"]
    fresh = open_encoder(module).untrained_encoders(images[:2])[0]
    before = fresh[1].weight.clone()  # type: ignore[index]
    train_supervised(fresh, open_dataset(some_data()), seed=0)
    assert not torch.equal(fresh[1].weight, before)  # type: ignore[index]
    assert not module[1].weight.requires_grad


class Untrainable(nn.Module):
    """A module that no gradient passes, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.linear = nn.Linear(192, 4) if way == "no_grad" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        match self.way:
            case "no_grad":
                with torch.no_grad():
                    return self.linear(x.flatten(1))
            case "numpy":
                return torch.from_numpy(x.cpu().numpy().mean((2, 3))).to(x.device)
        return torch.ones(len(x), 3, device=x.device)


@pytest.mark.parametrize("way", ["no_grad", "numpy", "constant"])
def test_a_module_without_a_ceiling_is_refused_before_long_work(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "graded_bounds", lambda *_, **__: pytest.fail("measured"))
    for encoder, others in ((Untrainable(way), {}), ("pixels", {"compare": Untrainable(way)})):
        with pytest.raises(ValueError, match=r"no gradient passes Untrainable.*leave torch") as e:
            module.audit(encoder, some_data(), cache=tmp_path, quiet=True, **others)
        assert "\n" not in str(e.value)


class Twice(nn.Module):
    """Images in numpy before a layer, which can be trained; and images changed in place."""

    def __init__(self, *, layer: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 4) if layer else None

    def forward(self, x: Tensor) -> Tensor:
        if self.layer is None:
            return x.sub_(0.5).flatten(1)
        return self.layer(torch.from_numpy(x.cpu().numpy()).to(x.device).flatten(1))


@pytest.mark.parametrize("layer", [True, False])
def test_a_module_that_a_gradient_reaches_is_let_through(layer: bool) -> None:
    encoder = Twice(layer=layer)
    with torch.no_grad():
        check_trainable(open_encoder(encoder), some_data()["x"][:2])
    assert encoder.training
