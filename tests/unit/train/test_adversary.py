"""Encoder and views that learn: a step of one leaves the other as it was."""

import copy
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed

from ranks import in_processes
from small_run import STEPS, batch, train_step
from widefield.core.types import Batch, Shard
from widefield.methods import METHODS
from widefield.train.adversary import adversary_log, loss_gradients
from widefield.train.step import TrainStep


def tensors(module: torch.nn.Module) -> dict[str, Tensor]:
    found = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {key: value.detach().clone() for key, value in found.items()}


def changed(before: dict[str, Tensor], module: torch.nn.Module) -> set[str]:
    now = tensors(module)
    return {key for key in before if not torch.equal(before[key], now[key])}


def rows(run: TrainStep) -> Any:
    return copy.deepcopy(run.state.model.state_dict().get("method.head._extra_state"))


@pytest.mark.parametrize(
    ("method", "views"),
    [*((method, "viewmaker+adversarial") for method in METHODS), ("row-contrast", "viewmaker")],
)
def test_the_adversarys_step_moves_the_views_alone(method: str, views: str) -> None:
    run = train_step(method, views)
    run(batch())
    ours, rows_before = tensors(run.state.model), rows(run)
    theirs = tensors(run.state.views)
    trained = {k for k, p in run.state.model.named_parameters() if p.requires_grad}
    loss = run.adversarial_step(batch())
    assert torch.isfinite(loss)
    assert not changed(ours, run.state.model)
    torch.testing.assert_close(rows(run), rows_before, rtol=0, atol=0)
    moved = changed(theirs, run.state.views)
    assert any(key.endswith("net.out.weight") for key in moved)
    parameters = dict(run.state.model.named_parameters())
    assert {key for key, p in parameters.items() if p.requires_grad} == trained
    assert all(p.grad is None for p in run.state.model.parameters())
    assert all(p.grad is None for p in run.state.views.parameters())
    run(batch())


@pytest.mark.parametrize("method", METHODS)
def test_asking_for_the_gradient_leaves_no_trace(method: str) -> None:
    run = train_step(method, "none", projector_batch_norm=False)
    run(batch(6))
    model = run.state.model
    before, rows_before = tensors(model), rows(run)
    ask = partial(loss_gradients, model, batch().index, run.compute.autocast)
    views = [0.2 + 0.6 * batch().x for _ in range(model.method.view_count)]
    gradients_of_views = ask(views)
    assert not changed(before, model)
    torch.testing.assert_close(rows(run), rows_before, rtol=0, atol=0)
    assert float(gradients_of_views[0].abs().max()) > 0


@pytest.mark.parametrize("method", ["simclr", "vicreg", "diet", "row-contrast", "supervised"])
def test_it_is_the_gradient(method: str) -> None:
    """A small step along it changes a loss without stopped gradients by as much as it says."""
    run = train_step(method, "none", projector_batch_norm=False, head_init="random")
    model = run.state.model
    ask = partial(loss_gradients, model, batch().index, run.compute.autocast)
    views = [0.2 + 0.6 * batch().x for _ in range(model.method.view_count)]
    gradients_of_views = ask(views)
    size = 1e-3 / max(float(gradient.abs().max()) for gradient in gradients_of_views)
    there, back = (
        [
            view + sign * size * gradient
            for view, gradient in zip(views, gradients_of_views, strict=True)
        ]
        for sign in (1, -1)
    )
    with torch.no_grad():
        rise = float(model(there, batch().index)[0] - model(back, batch().index)[0])
    told = 2 * size * sum(float(gradient.square().sum()) for gradient in gradients_of_views)
    assert rise == pytest.approx(told, rel=0.05)


def test_the_encoders_step_takes_views_as_given() -> None:
    """It moves the encoder and leaves the viewmaker where it is."""
    run = train_step("simclr", "viewmaker")
    run.adversarial_step = lambda batch: torch.zeros(())  # type: ignore[method-assign]
    ours, theirs = tensors(run.state.model), tensors(run.state.views)
    run(batch())
    assert changed(ours, run.state.model)
    assert not changed(theirs, run.state.views)


@pytest.mark.parametrize("method", ["simclr", "row-contrast", "barlow-twins"])
def test_the_adversary_raises_the_loss_of_a_still_encoder(method: str) -> None:
    run = train_step(method, "viewmaker", viewmaker_lr=3e-3, projector_batch_norm=False)
    run(batch())
    run.model.eval()  # its batch statistics stand still too
    losses = [float(run.adversarial_step(batch())) for _ in range(STEPS)]
    assert sum(losses[-8:]) / 8 > sum(losses[:8]) / 8 + 0.01 * abs(losses[0])


@pytest.mark.parametrize("method", ["simclr", "row-contrast", "moco"])
def test_an_attack_raises_the_loss_more_than_noise_of_its_size(method: str) -> None:
    """At the same places, same budget: views after no step, and after the last."""
    settings = {"attack_budget": 0.05, "projector_batch_norm": False}
    run = train_step(method, "adversarial", **settings)
    run.model.eval()
    model, x = run.state.model, batch().x
    noise = torch.Generator().manual_seed(5)
    start = [
        (x + 0.05 * (2 * torch.rand(x.shape, generator=noise) - 1)).clamp(0, 1)
        for _ in range(model.method.view_count)
    ]
    attacked = run.draw(batch())
    assert all(float((view - x).abs().max()) <= 0.05 + 1e-6 for view in attacked)
    with torch.no_grad():
        plain, worse = (model(v, batch().index)[0] for v in (start, attacked))
    assert float(worse) > float(plain)


def test_what_is_logged_of_the_adversary() -> None:
    run = train_step("simclr", "viewmaker+flip", viewmaker_lr=0.002)
    values = [run(batch()) for _ in range(3)]
    assert all("adversary_loss" in value for value in values)
    facts = {"adversary_optimizer": "adam", "adversary_step": 3.0, "adversary_lr": 0.002}
    assert adversary_log(run.state.adversary) == facts
    run = train_step("simclr", "flip")
    assert "adversary_loss" not in run(batch())
    assert adversary_log(run.state.adversary) == {}


@pytest.mark.parametrize("method", ["simclr", "row-contrast"])
def test_bf16_follows_single_precision(method: str) -> None:
    losses = []
    for precision in ("32", "bf16"):
        run = train_step(method, "viewmaker", precision=precision)
        losses.append(float(run.adversarial_step(batch())))
        assert all(p.dtype == torch.float32 for p in run.state.views.parameters())
        assert all(torch.isfinite(value) for value in run(batch()).values())
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]


SETTINGS = {"projector_batch_norm": False, "head_init": "random"}


def gradients(run: TrainStep, of: Batch) -> dict[str, Tensor]:
    """Of the viewmaker, with noise that is a function of the image: any process draws the same."""
    run.model.eval()
    with (
        mock.patch(
            "widefield.views.viewmaker._with_noise", lambda x, _: torch.cat([x, x[:, :1]], 1)
        ),
        mock.patch.object(run.state.adversary, "zero_grad"),
    ):
        run.adversarial_step(of)
    return {k: p.grad for k, p in run.state.views.named_parameters() if p.grad is not None}


def check_two(rank: int) -> None:
    for method in ("simclr", "row-contrast"):
        check_method(rank, method)


def check_method(rank: int, method: str) -> None:
    """Each rank's viewmaker gets the gradient of one process with the batch of both."""
    run = train_step(method, "viewmaker", shard=Shard(rank, 2), gather_distributed=True, **SETTINGS)
    ours = gradients(run, batch(rank, 3, skip=2))
    before = tensors(run.state.views)
    alone = train_step(method, "viewmaker", **SETTINGS)
    first, second = batch(0, 3, skip=2), batch(1, 3, skip=2)
    index = torch.cat([first.index, second.index])
    expected = gradients(alone, Batch(x=torch.cat([first.x, second.x]), index=index))
    assert ours.keys() == expected.keys()
    for key, gradient in ours.items():
        torch.testing.assert_close(gradient, expected[key], msg=lambda m, k=key: f"{k}: {m}")
    assert float(ours["net.out.weight"].abs().max()) > 0
    run(batch(rank, 3, skip=2))
    assert "net.out.weight" in changed(before, run.state.views)
    for value in run.state.views.parameters():
        theirs = [torch.empty_like(value) for _ in range(2)]
        distributed.all_gather(theirs, value.detach())
        assert torch.equal(theirs[0], theirs[1])


def test_two_processes_take_one_step_of_the_adversary() -> None:
    in_processes(2, check_two)
