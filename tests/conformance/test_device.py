"""A training step on a device: nothing is on the wrong side, and nothing waits for the device.

Every method, view policy, probe and readout runs on a stand-in, see `standin`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from small_run import batch, small_facts, small_recipe
from standin import DEVICE, MixedDevices, Watch, watch
from widefield.core.logmel import FrontEnd
from widefield.core.types import Batch
from widefield.data import Dataset, Loader, open_dataset
from widefield.data.table import Table
from widefield.encoders import Wide, build_encoder, fit_readout
from widefield.head import LazyAdamW, LazySGD, MemoryStorage, PerExampleHead, RowState
from widefield.head.lazy_optimizer import LazyOptimizer
from widefield.methods import METHODS
from widefield.methods.base import Method
from widefield.probes import extract, score
from widefield.train.build import DataInfo, build
from widefield.train.compute import Compute
from widefield.train.recover import train_to_predict
from widefield.train.step import TrainStep
from widefield.views import VIEWS, AugmentContext, ViewSettings, build_views

__all__ = ["watch"]

CPU = torch.device("cpu")
HEADS = ("view-contrast", "row-contrast", "s-diet")
WAITS = {"mmcr": ["_linalg_svd"]}
"""Torch's singular values check on the host that they converged."""


class Small(nn.Module):
    """An encoder of few kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.norm(self.conv(x)).relu().mean((2, 3))
        return h


def step_of(
    name: str, device: torch.device = DEVICE, *, folder: Path | None = None, **settings: Any
) -> TrainStep:
    views = settings.pop("views", "none")
    sizes = {"batch_size": 6, "epochs": 24, "head_storage": "device"}
    recipe = small_recipe(name, views, **(sizes | settings))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = Small()
    state = build(recipe, small_facts(), device=device, encoder=encoder, folder=folder)
    return TrainStep(state, compute=Compute(device, "32-true"))


def on_device(item: Batch) -> Batch:
    assert item.mask is not None
    return replace(item, x=item.x.to(DEVICE), mask=item.mask.to(DEVICE))


def third_step(watch: Watch, step: TrainStep, item: Batch) -> Tensor:
    """Take three steps; the watch has seen the last one, whose rows have momentum."""
    step(item)
    step(item)
    watch.clear()
    return step(item)["loss"]


@pytest.mark.parametrize("name", METHODS)
def test_a_step_waits_for_nothing_and_is_that_of_a_cpu(watch: Watch, name: str) -> None:
    loss = third_step(watch, step_of(name), on_device(batch()))
    assert [wait.split()[0] for wait in watch.waits] == WAITS.get(name, [])
    assert loss.device == DEVICE
    expected = third_step(watch, step_of(name, CPU), batch())
    assert float(loss) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", [*VIEWS, "crop+color", "viewmaker+flip"])
def test_views_wait_for_nothing(watch: Watch, name: str) -> None:
    views, item = build_views(name).to(DEVICE), on_device(batch())
    context = AugmentContext(mask=item.mask, gradients=lambda at: [0.5 - x for x in at])
    for _ in range(2):  # the first one copies constants to the device
        watch.clear()
        drawn = views(item.x, 2, torch.Generator(DEVICE), context)
    assert watch.waits == []
    assert [view.device for view in drawn] == [DEVICE] * 2


@pytest.mark.parametrize("views", ["viewmaker", "adversarial", "expert:stacked"])
def test_steps_with_views_that_learn_or_need_the_loss(watch: Watch, views: str) -> None:
    third_step(watch, step_of("simclr", views=views), on_device(batch()))
    assert watch.waits == []


@pytest.mark.parametrize("optimizer", ["sgd", "lars"])
@pytest.mark.parametrize("micro_batch", [None, 2])
def test_steps_of_other_optimizers_and_in_parts(
    watch: Watch, optimizer: str, micro_batch: int | None
) -> None:
    step = step_of("byol", optimizer=optimizer, micro_batch=micro_batch)
    third_step(watch, step, on_device(batch()))
    assert watch.waits == []


@pytest.mark.parametrize("name", HEADS)
def test_rows_on_disk_take_one_copy_each_way(watch: Watch, name: str, tmp_path: Path) -> None:
    step = step_of(name, head_storage="disk", folder=tmp_path)
    third_step(watch, step, on_device(batch()))
    step.state.close()
    assert watch.waits == []
    assert [copy.split(":")[0] for copy in watch.copies] == [
        "copy to the device at head/storage/disk.py",
        "copy to the device at head/lazy_adamw.py",
        "copy to the host at head/storage/disk.py",
    ]


def test_rows_in_host_memory_wait_for_their_gradient_alone(watch: Watch) -> None:
    third_step(watch, step_of("s-diet", head_storage="host"), on_device(batch()))
    (wait,) = watch.waits
    assert "copy to the host at head/lazy_optimizer.py" in wait


@pytest.mark.parametrize("kind", [LazyAdamW, LazySGD])
@pytest.mark.parametrize("missed", [0, 1, 10, 1000])
def test_catching_up_takes_a_dozen_kernels(
    watch: Watch, kind: type[LazyOptimizer], missed: int
) -> None:
    """Whatever was missed, and with any eps; its results are those of a CPU."""
    settings = {"eps": 0.0} if kind is LazyAdamW else {}
    states = []
    for device in (DEVICE, CPU):
        head = PerExampleHead(4, 3, storage=MemoryStorage(4, 3, seed=0, device=device))
        optimizer = kind(head, **settings)
        for _ in range(20 + missed):
            head.history.append(1e-2, weight_decay=0.05)
        row = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)).to(device)
        state = RowState(row, 0.1 * row, 0.01 * row, torch.tensor([20, 20, 15, 2]))
        watch.clear()
        states.append(optimizer.catch_up(state))
        if device == DEVICE:
            assert 0 < len(watch.kernels) <= 12
            assert (len(watch.copies), watch.waits) == (1, [])
    ours, expected = states
    assert torch.equal(ours.row.cpu(), expected.row)


def test_encoders_of_images_windows_and_sounds(watch: Watch) -> None:
    """Also of the spectrogram that a sound becomes, and of views in front of and behind it."""
    rate = 4000
    for kind, size, channels in (
        ("images", (16, 16), 3),
        ("windows", (1, 64), 3),
        ("sounds", (1, rate), 1),
    ):
        sounds = {"rate": rate, "spectrogram": ((-3.0,), (4.0,))} if kind == "sounds" else {}
        facts = DataInfo(examples=12, image_size=size, channels=channels, labels={}, **sounds)
        recipe = small_recipe("simclr", batch_size=4, epochs=9, encoder="auto")
        step = TrainStep(build(recipe, facts, device=DEVICE), compute=Compute(DEVICE, "32-true"))
        x = torch.rand(4, channels, *size).to(DEVICE)
        third_step(watch, step, Batch(x=x, index=torch.arange(4)))
        assert watch.waits == []


def test_views_of_waveforms_and_spectrograms(watch: Watch) -> None:
    views = ViewSettings.named("waveaug+specaug").build(
        channels=1, kind="sounds", front_end=FrontEnd(rate=4000, samples=4000)
    )
    x, generator = torch.rand(4, 1, 1, 4000).to(DEVICE), torch.Generator(DEVICE)
    views.to(DEVICE)(x, 2, generator)
    watch.clear()
    views(x, 2, generator)
    assert watch.waits == []


@pytest.fixture
def pictures() -> Dataset:
    return open_dataset("photos+digits", max_examples=48)


def test_a_batch_of_the_loader_waits_for_nothing(watch: Watch, pictures: Dataset) -> None:
    loader = Loader(pictures, batch_size=16, device=DEVICE, masks=True)
    watch.clear()
    item = next(iter(loader.epoch(0)))
    assert item.mask is not None
    assert [x.device for x in (item.x, item.mask, *item.labels.values())] == [DEVICE] * 4
    assert (item.index.device, watch.waits) == (CPU, [])


def test_probes_and_readouts(watch: Watch, pictures: Dataset) -> None:
    """They give numbers of the host, so they wait; no tensor is on the wrong side."""
    encoder = build_encoder("resnet-tiny", channels=3, image_size=32, seed=0).to(DEVICE)
    x = torch.from_numpy(pictures.images).permute(0, 3, 1, 2).to(DEVICE).float() / 255
    wide = Wide(encoder, fit_readout(encoder, [x])).to(DEVICE)
    h = extract(wide, pictures.images)
    assert h.device == DEVICE
    rows = np.arange(48)
    data = Table(names=[*map(str, rows)], labels={"class": rows % 3}, classes={"class": (*"abc",)})
    train, test = (replace(data, **data.columns(part)) for part in (rows[:36], rows[36:]))
    found = score(h[:36], train, h[36:], test, pooled=128)
    assert 0 <= found["class"].value <= 1
    assert any("_local_scalar_dense" in wait for wait in watch.waits)


def test_steps_of_recovery_wait_for_nothing(watch: Watch, pictures: Dataset) -> None:
    encoder, wanted = Small().to(DEVICE), torch.randn(48, 2)
    waits = []
    for epochs in (1, 3):
        watch.clear()
        train_to_predict(encoder, pictures.images, wanted, epochs=epochs, device=DEVICE)
        waits.append(len(watch.waits))
    assert waits[0] == waits[1]


def test_a_loss_that_reads_a_number_is_noticed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_step = Method.after_step
    monkeypatch.setattr(Method, "after_step", lambda self: (after_step(self), self.probe.item()))
    step = step_of("simclr")
    step.state.method.probe = torch.ones(()).to(DEVICE)
    third_step(watch, step, on_device(batch()))
    (wait,) = watch.waits
    assert "_local_scalar_dense at conformance/test_device.py" in wait


@pytest.mark.parametrize("wrong", [lambda h: h + torch.ones(6, 1), lambda h: h @ torch.ones(8, 2)])
def test_a_tensor_of_the_host_in_a_loss_is_refused(watch: Watch, wrong: Any) -> None:
    encoder = Small().to(DEVICE)
    with pytest.raises(MixedDevices):
        wrong(encoder(on_device(batch()).x))


@pytest.mark.parametrize(
    "read",
    [
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0.5],
        lambda x: x.nonzero(),
        lambda x: x.cpu(),
        lambda x: x[torch.tensor([0, 1])],
        lambda x: torch.ones(3).to(DEVICE),
        lambda x: torch.ones(3).to(DEVICE, non_blocking=True),
        lambda x: torch.tensor([1.0], device=DEVICE),
        lambda x: torch.equal(x, x),
    ],
)
def test_what_waits_for_a_device_is_noticed(watch: Watch, read: Any) -> None:
    x = torch.rand(6, 3).to(DEVICE)
    watch.clear()
    read(x)
    assert len(watch.waits) == 1


def test_metrics_wait_for_the_device_when_they_are_read(watch: Watch) -> None:
    from widefield.train.loop import _add

    sums: dict[str, Tensor] = {}
    loss = torch.ones(()).to(DEVICE)
    watch.clear()
    _add(sums, {"loss": loss})
    _add(sums, {"loss": loss})
    assert watch.waits == []
    assert np.isclose(float(sums["loss"]), 2)
    assert len(watch.waits) == 1
