"""Schedule and parameter groups."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from small_run import small_facts, small_recipe
from widefield.train.build import build, run_rates, warmup_steps
from widefield.train.manifest import Growth
from widefield.train.optim import build_optimizer, learning_rates
from widefield.train.step import set_learning_rate


def test_a_constant_schedule_stays_after_the_warm_up() -> None:
    rates = learning_rates(0.4, steps=5, warmup_steps=2, schedule="constant")
    assert rates.tolist() == [0.2, 0.4, 0.4, 0.4, 0.4]


@given(st.integers(1, 200), st.integers(0, 250))
def test_schedule_warms_up_then_follows_half_a_cosine(steps: int, warmup: int) -> None:
    rates = learning_rates(0.3, steps=steps, warmup_steps=warmup)
    warmup = min(warmup, steps)
    assert rates.shape == (steps,)
    assert rates.dtype == torch.float64
    for s in range(1, steps + 1):
        if s <= warmup:
            expected = 0.3 * s / warmup
        else:
            expected = 0.15 * (1 + math.cos(math.pi * (s - warmup - 1) / (steps - warmup)))
        assert float(rates[s - 1]) == pytest.approx(expected, rel=1e-12)
    assert float(rates.min()) > 0


def test_a_warm_up_in_steps_takes_the_place_of_one_in_epochs() -> None:
    recipe = small_recipe("s-diet", epochs=6, batch_size=4, warmup_epochs=2)
    in_epochs, in_steps = (
        run_rates(r, examples=20) for r in (recipe, replace(recipe, warmup_steps=3))
    )
    assert len(in_epochs) == len(in_steps) == 30  # five steps an epoch
    assert in_epochs.argmax() == 9  # the last of ten, the first that reaches the peak
    assert in_steps.argmax() == 2
    assert torch.equal(run_rates(replace(recipe, warmup_steps=10), examples=20), in_epochs)


@pytest.mark.parametrize(("joined", "peak"), [(1, 4 + 10), (2, 8), (4, 8)])
def test_the_warm_up_is_not_longer_for_examples_that_join_after_it(joined: int, peak: int) -> None:
    """Two epochs of four steps; from epoch `joined` on an epoch has ten."""
    recipe = small_recipe("s-diet", epochs=8, batch_size=4, warmup_epochs=2)
    growth = Growth(first=16, epoch=joined, step=4 * joined)
    rates = run_rates(recipe, 40, growth)
    assert len(rates) == 4 * joined + 10 * (8 - joined)
    assert rates.argmax() == peak - 1
    assert (rates[peak:].diff() < 0).all()


def test_examples_that_join_twice_leave_a_warm_up_that_is_over_as_it_was() -> None:
    """An epoch of 4 steps, then 10 an epoch for the rest of the warm-up, then 11."""
    recipe = small_recipe("s-diet", epochs=8, batch_size=4, warmup_epochs=2)
    once = Growth(first=16, epoch=1, step=4, warmup_steps=8)  # which was not over by then
    twice = Growth(first=16, epoch=5, step=44, warmup_steps=warmup_steps(recipe, 40, once))
    assert warmup_steps(recipe, 44, twice) == warmup_steps(recipe, 40, once) == 14
    before, after = run_rates(recipe, 40, once), run_rates(recipe, 44, twice)
    assert (len(before), len(after)) == (74, 77)
    assert torch.equal(before[:14], after[:14])
    assert float(after[44]) == pytest.approx(float(before[44]), rel=0.1)  # three steps more to fall


def test_groups_cover_every_parameter_once() -> None:
    recipe = small_recipe("diet", head_lr_scale=7.0, weight_decay=0.1)
    model = build(recipe, small_facts(), device=torch.device("cpu")).model
    optimizer = build_optimizer(model, recipe)
    set_learning_rate(optimizer, 0.01)
    seen: dict[int, tuple[float, float]] = {}
    for group in optimizer.param_groups:
        for p in group["params"]:
            assert id(p) not in seen
            seen[id(p)] = (group["lr"], group["weight_decay"])
    parameters = dict(model.named_parameters())
    assert len(seen) == len(parameters)
    for name, p in parameters.items():
        if name == "method.rows":
            assert seen[id(p)] == (0.07, 0.1)
        else:
            assert seen[id(p)] == (0.01, 0.1 if p.ndim > 1 else 0.0), name


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lars_scales_matrices_by_their_norm_and_leaves_biases_and_gains_alone(
    weight_decay: float,
) -> None:
    """d = min(1, trust |w| / (|g| + l |w|) / lr) (g + l w); v <- 0.9 v + d; w <- w - lr v."""
    recipe = small_recipe("diet", optimizer="lars", weight_decay=weight_decay, head_lr_scale=2.0)
    state = build(recipe, small_facts(), device=torch.device("cpu"))
    set_learning_rate(state.optimizer, 0.3)
    generator = torch.Generator().manual_seed(0)
    expected = []
    for group in state.optimizer.param_groups:
        for p in group["params"]:
            grads = [torch.randn(p.shape, generator=generator) for _ in range(2)]
            lr = 0.3 * group["lr_scale"]
            w, v = p.detach().clone(), torch.zeros_like(p)
            for g in grads:
                d = g
                if p.ndim > 1:
                    size, slope = float(w.norm()), float(g.norm())
                    rate = 0.02 * size / (slope + weight_decay * size) / lr if size else 1.0
                    d = min(1.0, rate) * (g + weight_decay * w)
                v = 0.9 * v + d
                w = w - lr * v
            expected.append((p, grads, w))
    assert {group["lr_scale"] for group in state.optimizer.param_groups} == {1.0, 2.0}
    for step in range(2):
        for p, grads, _ in expected:
            p.grad = grads[step]
        state.optimizer.step()
    for p, _, w in expected:
        torch.testing.assert_close(p.data, w, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_rows_learn_at_their_own_multiple_of_the_rate(kind: str) -> None:
    recipe = small_recipe("s-diet", head_lr_scale=7.0, head_optimizer=kind, weight_decay=0.1)
    state = build(recipe, small_facts(), device=torch.device("cpu"))
    (optimizer,) = state.head_optimizers
    set_learning_rate(optimizer, 0.01)
    index = torch.arange(6)
    state.method(state.encoder, [torch.rand(6, 3, 16, 16)], index).total.backward()
    optimizer.step()
    assert type(optimizer).__name__.lower() == f"lazy{kind}"
    assert optimizer.param_groups[0]["weight_decay"] == 0.1
    assert state.heads[0].history.lr(torch.tensor([1])).tolist() == [pytest.approx(0.07)]
