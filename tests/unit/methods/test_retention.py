"""Retention: its loss against brute force, what it counts, and where it is added."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from small_run import batch, small_facts, small_recipe
from widefield.encoders import build_encoder
from widefield.methods import METHODS
from widefield.methods.retention import Retention
from widefield.train.build import build
from widefield.train.state import TrainState


@given(n=st.integers(2, 9), dim=st.integers(1, 5), views=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_loss_is_the_share_that_the_map_does_not_predict(
    n: int, dim: int, views: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    first = 3 + torch.randn(n, dim, generator=generator)
    h = torch.randn(views, n, dim, generator=generator)
    retention = Retention(first)
    index = torch.randperm(n, generator=generator)
    z = h @ retention.map.weight.T + retention.map.bias
    std, mean = first.std(0, correction=0), first.mean(0)
    by_hand = sum(
        ((z[v, i] - (first[index[i]] - mean) / std) ** 2).mean().item()
        for v in range(views)
        for i in range(n)
    ) / (views * n)
    assert retention(h.flatten(0, 1), index).item() == pytest.approx(by_hand, rel=0.01)


def test_features_that_do_not_vary_do_not_count() -> None:
    """Of a collapsed start nothing is to be kept; one image has no variance either."""
    first, every = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), torch.arange(20)
    first[:, 0] = 7.0
    expected = Retention(first[:, 1:])(first[:, 1:].flip(0), every).item()
    assert Retention(first)(first.flip(0), every).item() == pytest.approx(expected, rel=1e-4)
    assert Retention(torch.ones(20, 4))(first, every).item() == 0.0
    assert Retention(first[:1])(first[1:2], every[:1]).item() == 0.0


def state(method: str, retention: float, **settings: object) -> TrainState:
    recipe = small_recipe(method, "none", batch_size=6, epochs=2)
    recipe = recipe.changed({"init": "an encoder", "retention": retention, **settings})
    encoder = build_encoder("resnet-tiny", image_size=16, zero_init_last=False, seed=4)
    retained = torch.randn(small_facts().examples, encoder.dim) if retention else None
    return build(
        recipe, small_facts(), device=torch.device("cpu"), encoder=encoder, retained=retained
    )


@pytest.mark.parametrize("micro_batch", [None, 3])
@pytest.mark.parametrize("method", METHODS)
def test_it_is_added_to_every_objective(method: str, micro_batch: int | None) -> None:
    settings = {} if micro_batch is None else {"micro_batch": micro_batch}
    run, control = state(method, 2.0, **settings), state(method, 0.0, **settings)
    losses = {}
    for name, each in {"with": run, "without": control}.items():
        each.model.train()
        torch.manual_seed(0)
        views = [batch().x] * each.method.view_count
        losses[name] = each.model(views, batch().index.numpy())
    total, parts = losses["with"]
    alone = losses["without"][0]
    expected = alone + 2 * alone.abs() * parts["not_retained"]
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-4)
    assert "not_retained" not in losses["without"][1]
    total.backward()
    assert run.model.retention is not None
    assert run.model.retention.map.weight.grad is not None


def test_its_map_learns_at_the_rate_of_the_initial_weights() -> None:
    run = state("simclr", 1.0, init_lr_scale=0.25)
    assert run.model.retention is not None
    ids = {id(p) for p in run.model.retention.parameters()}
    scales = {
        g["lr_scale"] for g in run.optimizer.param_groups for p in g["params"] if id(p) in ids
    }
    assert scales == {0.25}


def test_no_hook_stays_on_the_encoder() -> None:
    run = state("simclr", 1.0)
    run.model([batch().x] * 2, batch().index.numpy())
    assert isinstance(run.encoder, nn.Module)
    assert not run.encoder._forward_hooks
