"""What every entry of METHODS must do; a new entry is tested without adding a line here."""

import copy

import pytest
import torch
from torch import Tensor, nn

from widefield.encoders import build_encoder
from widefield.methods import METHODS, Method, RunFacts, build_method
from widefield.recipe import Recipe
from widefield.train.loop import Objective
from widefield.train.optim import build_optimizer, set_learning_rate
from widefield.views import build_views

EXAMPLES, STEPS = 24, 30

every_method = pytest.mark.parametrize("name", METHODS)


def build(name: str, channels: int = 3, seed: int = 0) -> tuple[nn.Module, Method, Recipe]:
    recipe = Recipe.named(
        method=name, encoder="resnet-tiny", projector_width=32, projector_dim=16, lr=1e-3
    )
    encoder = build_encoder("resnet-tiny", channels=channels, image_size=16, seed=seed)
    labels = torch.randint(3, (EXAMPLES,), generator=torch.Generator().manual_seed(0))
    facts = RunFacts(
        encoder=encoder,
        feature_dim=encoder.dim,
        examples=EXAMPLES,
        labels={"class": labels},
        learning_rates=torch.full((STEPS + 1,), recipe.lr, dtype=torch.float64),
        device=torch.device("cpu"),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return encoder, build_method(recipe, facts), recipe


def images(count: int, channels: int = 3, width: int = 16) -> Tensor:
    return torch.rand(count, channels, 16, width, generator=torch.Generator().manual_seed(1))


def draw(method: Method, x: Tensor, seed: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return build_views("expert")(x, method.view_count, generator)


def take_steps(
    name: str, first: int, last: int, objective: Objective, recipe: Recipe
) -> list[float]:
    method, losses = objective.method, []
    optimizer = build_optimizer(objective.encoder, method, recipe)
    x, index = images(12), torch.arange(12) * 2
    for step in range(first, last + 1):
        set_learning_rate(optimizer, recipe.lr)
        total, _ = objective(draw(method, x, seed=0), index)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(objective.encoder, step, recipe.lr)
        losses.append(float(total.detach()))
    return losses


@every_method
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("count", "width"), [(2, 16), (7, 24)])
def test_loss_is_finite_and_reaches_the_encoder(
    name: str, channels: int, count: int, width: int
) -> None:
    encoder, method, _ = build(name, channels)
    views = draw(method, images(count, channels, width))
    loss = method.loss(encoder, views, torch.arange(count))
    assert loss.total.shape == ()
    assert torch.isfinite(loss.total)
    assert all(not part.requires_grad for part in loss.parts.values())
    loss.total.backward()
    for key, parameter in encoder.named_parameters():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
    assert any(float(p.grad.abs().max()) > 0 for p in encoder.parameters() if p.grad is not None)
    assert all(p.grad is not None for p in method.parameters() if p.requires_grad)


@every_method
def test_loss_is_float32_under_autocast(name: str) -> None:
    encoder, method, _ = build(name)
    views = draw(method, images(4))
    with torch.autocast("cpu", torch.bfloat16):
        assert method.loss(encoder, views, torch.arange(4)).total.dtype == torch.float32


@every_method
def test_loss_falls_on_a_fixed_batch(name: str) -> None:
    encoder, method, recipe = build(name)
    losses = take_steps(name, 1, 20, Objective(encoder, method), recipe)
    assert losses[-1] < losses[0]


@every_method
def test_state_survives_a_checkpoint(name: str) -> None:
    """Saved after 3 steps and loaded into a fresh pair, the loss of the next step is the same."""
    encoder, method, recipe = build(name)
    original = Objective(encoder, method)
    take_steps(name, 1, 3, original, recipe)
    saved = copy.deepcopy(original.state_dict())
    restored = Objective(*build(name, seed=9)[:2])
    restored.load_state_dict(saved)
    views, index = draw(method, images(6)), torch.arange(6)
    ours, theirs = original(views, index)[0], restored(views, index)[0]
    assert torch.equal(ours, theirs)


@every_method
def test_same_seed_same_run(name: str) -> None:
    runs = []
    for _ in range(2):
        encoder, method, recipe = build(name)
        runs.append(take_steps(name, 1, 3, Objective(encoder, method), recipe))
    assert runs[0] == runs[1]


@every_method
def test_nothing_is_drawn_in_evaluation_mode(name: str) -> None:
    """The global random state stands still, and the same views give the same loss."""
    encoder, method, _ = build(name)
    encoder.eval()
    method.eval()
    views, index = draw(method, images(5)), torch.arange(5)
    before = torch.get_rng_state()
    first, second = (method.loss(encoder, views, index).total for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)


@every_method
def test_an_optimiser_moves_what_needs_a_gradient_and_nothing_else(name: str) -> None:
    encoder, method, recipe = build(name)
    groups = build_optimizer(encoder, method, recipe).param_groups
    moved = {id(p) for group in groups for p in group["params"]}
    trained = [p for p in Objective(encoder, method).parameters() if p.requires_grad]
    assert moved == {id(p) for p in trained}


@every_method
def test_same_seed_same_method(name: str) -> None:
    first, second = build(name)[1].state_dict(), build(name)[1].state_dict()
    assert first.keys() == second.keys()
    for key, value in first.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, second[key]), key
