"""Two players: each step moves its own, and whoever only asks for the loss leaves no trace."""

import copy
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, distributed, nn

from small_run import STEPS, batch, stepper
from two_processes import in_two_processes
from widefield.methods import METHODS
from widefield.methods.simclr import SimClr, one_sided
from widefield.train.loop import Stepper
from widefield.train.opponent import opponent_facts, scene
from widefield.types import Batch, Shard


def state(module: torch.nn.Module) -> dict[str, Tensor]:
    found = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {key: value.detach().clone() for key, value in found.items()}


def changed(before: dict[str, Tensor], module: torch.nn.Module) -> set[str]:
    now = state(module)
    return {key for key in before if not torch.equal(before[key], now[key])}


def rows(run: Stepper) -> Any:
    return copy.deepcopy(run.training.objective.state_dict().get("method._extra_state"))


@pytest.mark.parametrize("method", METHODS)
def test_the_opponents_step_moves_the_views_alone(method: str) -> None:
    run = stepper(method, "viewmaker")
    run.step(batch())
    ours, rows_before = state(run.training.objective), rows(run)
    theirs = state(run.training.views)
    trained = {k for k, p in run.training.objective.named_parameters() if p.requires_grad}
    loss = run.oppose(batch())
    assert torch.isfinite(loss)
    assert not changed(ours, run.training.objective)
    torch.testing.assert_close(rows(run), rows_before, rtol=0, atol=0)
    assert "net.out.weight" in changed(theirs, run.training.views)
    parameters = dict(run.training.objective.named_parameters())
    assert {key for key, p in parameters.items() if p.requires_grad} == trained
    assert all(p.grad is None for p in run.training.objective.parameters())
    assert all(p.grad is None for p in run.training.views.parameters())


@pytest.mark.parametrize("method", METHODS)
def test_asking_for_the_slope_leaves_no_trace(method: str) -> None:
    run = stepper(method, "none", projector_batch_norm=False)
    run.step(batch(6))
    objective = run.training.objective
    before, rows_before = state(objective), rows(run)
    ask = scene(objective, batch(), run.fabric.autocast).gradients
    assert ask is not None
    views = [0.2 + 0.6 * batch().x for _ in range(objective.method.view_count)]
    slopes = ask(views)
    assert not changed(before, objective)
    torch.testing.assert_close(rows(run), rows_before, rtol=0, atol=0)
    assert float(slopes[0].abs().max()) > 0


@pytest.mark.parametrize("method", ["simclr", "vicreg", "diet", "s-diet", "supervised"])
def test_it_is_the_slope(method: str) -> None:
    """A small step along it changes a loss without stopped gradients by as much as it says."""
    run = stepper(method, "none", projector_batch_norm=False, row_start="random")
    objective = run.training.objective
    ask = scene(objective, batch(), run.fabric.autocast).gradients
    assert ask is not None
    views = [0.2 + 0.6 * batch().x for _ in range(objective.method.view_count)]
    slopes = ask(views)
    size = 1e-3 / max(float(slope.abs().max()) for slope in slopes)
    there, back = (
        [view + sign * size * slope for view, slope in zip(views, slopes, strict=True)]
        for sign in (1, -1)
    )
    with torch.no_grad():
        rise = float(objective(there, batch().index)[0] - objective(back, batch().index)[0])
    told = 2 * size * sum(float(slope.square().sum()) for slope in slopes)
    assert rise == pytest.approx(told, rel=0.05)


def test_the_encoders_step_takes_views_as_given() -> None:
    """It moves the encoder and leaves the viewmaker where it is."""
    run = stepper("simclr", "viewmaker")
    run.oppose = lambda batch: torch.zeros(())  # type: ignore[method-assign]
    ours, theirs = state(run.training.objective), state(run.training.views)
    run.step(batch())
    assert changed(ours, run.training.objective)
    assert not changed(theirs, run.training.views)


@pytest.mark.parametrize("method", ["simclr", "s-diet", "barlow-twins"])
def test_the_opponent_raises_the_loss_of_a_still_encoder(method: str) -> None:
    run = stepper(method, "viewmaker", opponent_lr=3e-3, projector_batch_norm=False)
    run.step(batch())
    run.objective.eval()  # its batch statistics stand still too
    losses = [float(run.oppose(batch())) for _ in range(STEPS)]
    assert sum(losses[-8:]) / 8 > sum(losses[:8]) / 8 + 0.01 * abs(losses[0])


@pytest.mark.parametrize("method", ["simclr", "s-diet", "moco"])
def test_an_attack_raises_the_loss_more_than_noise_of_its_size(method: str) -> None:
    """At the same places, same budget: views after no step, and after the last."""
    settings = {"attack_budget": 0.05, "projector_batch_norm": False}
    run = stepper(method, "adversarial", **settings)
    run.objective.eval()
    training, x = run.training, batch().x
    noise = torch.Generator().manual_seed(5)
    start = [
        (x + 0.05 * (2 * torch.rand(x.shape, generator=noise) - 1)).clamp(0, 1)
        for _ in range(training.objective.method.view_count)
    ]
    attacked = run.draw(batch())
    assert all(float((view - x).abs().max()) <= 0.05 + 1e-6 for view in attacked)
    with torch.no_grad():
        plain, worse = (training.objective(v, batch().index)[0] for v in (start, attacked))
    assert float(worse) > float(plain)


def test_what_is_logged_of_the_opponent() -> None:
    run = stepper("simclr", "viewmaker+flip", opponent_lr=0.002)
    values = [run.step(batch()) for _ in range(3)]
    assert all("opponent_loss" in value for value in values)
    facts = {"opponent_optimizer": "adam", "opponent_step": 3.0, "opponent_lr": 0.002}
    assert opponent_facts(run.training.opponent) == facts
    run = stepper("simclr", "flip")
    assert "opponent_loss" not in run.step(batch())
    assert opponent_facts(run.training.opponent) == {}


def test_the_published_viewmaker_plays_with_its_own_loss() -> None:
    """Beside the views' own quirks, which tests/unit/views/test_viewmaker.py has one by one."""
    run = stepper("simclr", "viewmaker:as_published")
    method = run.training.objective.method
    assert isinstance(method, SimClr)
    assert (method.kind, method.temperature) == ("one-sided", 0.07)
    z = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    method.projector = nn.Identity()
    total = method.loss(lambda x: z, [batch().x, batch().x], batch().index).total  # type: ignore[arg-type]
    torch.testing.assert_close(total, one_sided(z[:6], z[6:], temperature=0.07))


@pytest.mark.parametrize("method", ["simclr", "s-diet"])
def test_bf16_follows_single_precision(method: str) -> None:
    losses = []
    for precision in ("32", "bf16"):
        run = stepper(method, "viewmaker", precision=precision)
        losses.append(float(run.oppose(batch())))
        assert all(p.dtype == torch.float32 for p in run.training.views.parameters())
        assert all(torch.isfinite(value) for value in run.step(batch()).values())
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert losses[0] != losses[1]


SETTINGS = {"projector_batch_norm": False, "row_start": "random"}


def gradients(run: Stepper, of: Batch) -> dict[str, Tensor]:
    """Of the viewmaker, with noise that is a function of the image: any process draws the same."""
    run.objective.eval()
    with (
        mock.patch(
            "widefield.views.viewmaker._with_noise", lambda x, _: torch.cat([x, x[:, :1]], 1)
        ),
        mock.patch.object(run.opponent, "zero_grad"),
    ):
        run.oppose(of)
    return {k: p.grad for k, p in run.training.views.named_parameters() if p.grad is not None}


def check_two(rank: int) -> None:
    for method in ("simclr", "s-diet"):
        check_method(rank, method)


def check_method(rank: int, method: str) -> None:
    """Each rank's viewmaker gets the gradient of one process with the batch of both."""
    run = stepper(method, "viewmaker", shard=Shard(rank, 2), gather=True, **SETTINGS)
    ours = gradients(run, batch(rank, 3, skip=2))
    before = state(run.training.views)
    alone = stepper(method, "viewmaker", **SETTINGS)
    first, second = batch(0, 3, skip=2), batch(1, 3, skip=2)
    index = torch.cat([first.index, second.index])
    expected = gradients(alone, Batch(x=torch.cat([first.x, second.x]), index=index))
    assert ours.keys() == expected.keys()
    for key, gradient in ours.items():
        torch.testing.assert_close(gradient, expected[key], msg=lambda m, k=key: f"{k}: {m}")
    assert float(ours["net.out.weight"].abs().max()) > 0
    run.step(batch(rank, 3, skip=2))
    assert "net.out.weight" in changed(before, run.training.views)
    for value in run.training.views.parameters():
        theirs = [torch.empty_like(value) for _ in range(2)]
        distributed.all_gather(theirs, value.detach())
        assert torch.equal(theirs[0], theirs[1])


def test_two_processes_take_one_step_of_the_opponent() -> None:
    in_two_processes(check_two)
