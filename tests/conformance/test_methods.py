"""What every entry of METHODS must do; a new entry is tested without adding a line here."""

import copy

import pytest
import torch
from torch import Tensor

from axes import each_value
from small_run import small_facts, small_recipe
from widefield.config.recipe import Recipe
from widefield.methods import METHODS, Method
from widefield.train.build import build
from widefield.train.state import TrainState
from widefield.train.step import set_learning_rate
from widefield.views import build_views

EXAMPLES, LR = 24, 1e-3

every_method = pytest.mark.parametrize("name", METHODS)


def small_state(name: str, channels: int = 3, seed: int = 0) -> TrainState:
    recipe = small_recipe(name, projector_width=32, projector_dim=16, lr=LR, seed=seed, epochs=40)
    facts = small_facts(EXAMPLES, channels=channels)
    return build(recipe.changed({"batch_size": 12}), facts, device=torch.device("cpu"))


def images(count: int, channels: int = 3, width: int = 16) -> Tensor:
    return torch.rand(count, channels, 16, width, generator=torch.Generator().manual_seed(1))


def draw(method: Method, x: Tensor, seed: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return build_views("expert")(x, method.view_count, generator)


def take_steps(state: TrainState, count: int) -> list[float]:
    losses, index = [], torch.arange(12) * 2
    views = draw(state.method, images(12), seed=0)
    for _ in range(count):
        optimizers = [state.optimizer, *state.head_optimizers]
        for optimizer in optimizers:
            set_learning_rate(optimizer, LR)
        total, _ = state.model(views, index)
        total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        state.method.after_step()
        losses.append(float(total.detach()))
    return losses


@every_method
@each_value(("channels", [1, 3]), (("count", "width"), [(2, 16), (7, 24)]))
def test_loss_is_finite_and_reaches_the_encoder(
    name: str, channels: int, count: int, width: int
) -> None:
    state = small_state(name, channels)
    encoder, method = state.encoder, state.method
    views = draw(method, images(count, channels, width))
    loss = method(encoder, views, torch.arange(count))
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
    state = small_state(name)
    encoder, method = state.encoder, state.method
    views = draw(method, images(4))
    with torch.autocast("cpu", torch.bfloat16):
        assert method(encoder, views, torch.arange(4)).total.dtype == torch.float32


@every_method
def test_a_run_repeats_itself_goes_on_from_a_checkpoint_and_learns(name: str) -> None:
    """Saved after 3 steps and loaded into a fresh state, the losses of the next are the same."""
    original, same, restored = small_state(name), small_state(name), small_state(name, seed=9)
    losses = take_steps(original, 3)
    assert take_steps(same, 3) == losses
    restored.load_state_dict(copy.deepcopy(original.state_dict()))
    losses += take_steps(original, 2)
    assert take_steps(restored, 2) == losses[3:]
    losses += take_steps(original, 5)
    assert losses[-1] < losses[0]  # on a fixed batch


@every_method
def test_nothing_is_drawn_in_evaluation_mode(name: str) -> None:
    """The global random state stands still, and the same views give the same loss.

    The index may be of any integer type.
    """
    state = small_state(name)
    encoder, method = state.encoder, state.method
    encoder.eval()
    method.eval()
    views, index = draw(method, images(5)), torch.arange(5)
    before = torch.get_rng_state()
    first, second = (method(encoder, views, i).total for i in (index, index.int()))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)


@every_method
def test_an_optimizer_moves_what_needs_a_gradient_and_nothing_else(name: str) -> None:
    state = small_state(name)
    moved = {id(p) for group in state.optimizer.param_groups for p in group["params"]}
    trained = [p for p in state.model.parameters() if p.requires_grad]
    assert moved == {id(p) for p in trained}


@every_method
def test_same_seed_same_method(name: str) -> None:
    first, second = (small_state(name).method.state_dict() for _ in range(2))
    assert first.keys() == second.keys()
    for key, value in first.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, second[key]), key


@every_method
def test_what_must_follow_a_step_cannot_be_forgotten(name: str) -> None:
    """A second batch without `after_step`, or the head's step, is refused where they matter."""
    state = small_state(name)
    views, index = draw(state.method, images(6)), torch.arange(6)
    state.model(views, index)[0].backward()
    if state.method.moves_after_step or state.heads:
        with pytest.raises(ValueError, match="second batch before"):
            state.model(views, index)
        for optimizer in state.head_optimizers:
            optimizer.step()
        state.method.after_step()
        if state.method.moves_after_step:
            with pytest.raises(ValueError, match="call it once a step"):
                state.method.after_step()
    state.model(views, index)


@every_method
def test_a_name_stands_on_the_settings_and_in_the_table(name: str) -> None:
    assert METHODS[name].name == name
    assert Recipe(method=METHODS[name]()).flat()["method"] == name


@every_method
def test_memory_is_what_the_method_holds_for_its_examples(name: str) -> None:
    """Twice the examples, twice the bytes; methods without a head say nothing."""
    state = small_state(name)
    one, two = state.method.memory(EXAMPLES), state.method.memory(2 * EXAMPLES)
    assert set(one) in ({"head", "moments"}, {"head"}, set())
    assert all(two[part].bytes == 2 * one[part].bytes for part in one)
    rows = [*state.method.head_parameters(), *(h.storage.row for h in state.heads)]
    assert sum(r.nbytes for r in rows) == (one["head"].bytes if one else 0)
