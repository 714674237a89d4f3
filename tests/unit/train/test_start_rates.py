"""Learning rates of a start layer by layer, against plain SGD by hand; what is frozen stands."""

from typing import Any

import pytest
import timm
import torch
from torch import nn

from small_run import batch, small_facts, small_recipe
from widefield.encoders import build_encoder, layer_names
from widefield.methods import target_networks
from widefield.train.build import build
from widefield.train.optim import freeze_init
from widefield.train.state import TrainState
from widefield.train.step import set_learning_rate

CPU = torch.device("cpu")


def state(**settings: Any) -> TrainState:
    recipe = small_recipe("simclr", "none", batch_size=6, epochs=2, warmup_epochs=0)
    usual = {"init": "an encoder", "optimizer": "sgd", "freeze_norm_layers": False}
    recipe = recipe.changed(usual | settings)
    encoder = build_encoder("resnet-tiny", image_size=16, zero_init_last=False, seed=4)
    return build(recipe, small_facts(), device=CPU, encoder=encoder)


def stepped(state: TrainState, lr: float) -> dict[str, torch.Tensor]:
    """Take one step of plain SGD at `lr`; return each parameter's gradient."""
    state.model.train()
    set_learning_rate(state.optimizer, lr)
    loss, _ = state.model([batch().x, batch().x.flip(3)], batch().index)
    loss.backward()
    gradients = {
        name: p.grad.clone() for name, p in state.encoder.named_parameters() if p.grad is not None
    }
    state.optimizer.step()
    return gradients


@pytest.mark.parametrize(("scale", "decay"), [(1.0, 1.0), (0.1, 1.0), (0.5, 0.3)])
def test_every_layer_moves_at_its_rate(scale: float, decay: float) -> None:
    moved = state(init_lr_scale=scale, layer_decay=decay, weight_decay=0)
    before = {name: p.detach().clone() for name, p in moved.encoder.named_parameters()}
    gradients = stepped(moved, 0.1)
    layers = ["conv1", "layer1", "layer2", "layer3", "layer4"]
    for name, p in moved.encoder.named_parameters():
        layer = name.removeprefix("backbone.").split(".")[0].replace("bn1", "conv1")
        rate = 0.1 * scale * decay ** (4 - layers.index(layer))
        torch.testing.assert_close(p.detach(), before[name] - rate * gradients[name])


def test_the_projector_keeps_the_runs_rate() -> None:
    groups = state(init_lr_scale=0.1).optimizer.param_groups
    scales = {id(p): group["lr_scale"] for group in groups for p in group["params"]}
    model = state(init_lr_scale=0.1).model
    assert set(scales.values()) == {0.1, 1.0}
    count = sum(1 for _ in model.method.parameters())
    assert list(scales.values()).count(1.0) == count


def test_without_a_start_all_move_alike() -> None:
    groups = state(init=None, init_lr_scale=0.1, layer_decay=0.5).optimizer.param_groups
    assert {group["lr_scale"] for group in groups} == {1.0}


def moved_by_a_step(**settings: Any) -> set[str]:
    """Return the tensors of the encoder, running statistics too, that a step changes at all."""
    run = state(optimizer="adamw", **settings)
    before = {name: value.clone() for name, value in run.encoder.state_dict().items()}
    stepped(run, 0.1)
    after = run.encoder.state_dict()
    return {name for name, value in before.items() if not torch.equal(value, after[name])}


def test_first_blocks_stand_bit_for_bit() -> None:
    moved = moved_by_a_step(freeze_blocks=3)
    assert {name.split(".")[1] for name in moved} == {"layer3", "layer4"}
    assert {name.split(".")[1] for name in moved_by_a_step()} >= {"conv1", "bn1", "layer1"}


def test_norms_stand_bit_for_bit() -> None:
    encoder = state().encoder
    norms = {name for name, part in encoder.named_modules() if isinstance(part, nn.BatchNorm2d)}
    of_norms = {name for name in encoder.state_dict() if name.rpartition(".")[0] in norms}
    assert moved_by_a_step() >= of_norms
    moved = moved_by_a_step(freeze_norm_layers=True)
    assert moved
    assert not moved & of_norms


def test_what_is_frozen_stays_in_evaluation_mode() -> None:
    run = state(freeze_norm_layers=True)
    run.model.train()
    assert run.model.training
    modes = {part.training for part in run.encoder.modules() if isinstance(part, nn.BatchNorm2d)}
    assert modes == {False}


@pytest.mark.parametrize("method", ["moco", "byol"])
@pytest.mark.parametrize("frozen", [{"freeze_norm_layers": True}, {"freeze_blocks": 3}])
def test_a_target_network_normalizes_as_what_it_follows(
    method: str, frozen: dict[str, Any]
) -> None:
    run = state(method=method, **frozen)
    run.model.train()
    (target,) = target_networks(run.method)
    modes = {
        name: (part.training, target.encoder.get_submodule(name).training)
        for name, part in run.encoder.named_modules()
        if isinstance(part, nn.BatchNorm2d)
    }
    assert all(own == copied for own, copied in modes.values())
    assert not all(own for own, _ in modes.values())


def test_a_norm_without_weights_stands_too() -> None:
    encoder = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Flatten())
    recipe = small_recipe("simclr").changed({"init": "an encoder"})
    assert freeze_init(encoder, recipe) == [encoder[1]]
    recipe = recipe.changed({"freeze_norm_layers": False})
    assert freeze_init(encoder, recipe) == []


@pytest.mark.parametrize("norm", [nn.RMSNorm(4), timm.layers.RmsNorm(4), nn.LayerNorm(4)])
def test_norms_of_every_library_stand(norm: nn.Module) -> None:
    encoder = nn.Sequential(nn.Linear(4, 4), norm, nn.Linear(4, 4))
    assert freeze_init(encoder, small_recipe("simclr").changed({"init": "an encoder"})) == [norm]
    assert [p.requires_grad for p in norm.parameters()] == [False] * len(list(norm.parameters()))


@pytest.mark.parametrize("blocks", [5, 9])
@pytest.mark.parametrize("settings", [{}, {"projector_layers": 0}])
def test_more_blocks_than_there_are_are_refused(blocks: int, settings: dict[str, Any]) -> None:
    assert len(layer_names(state().encoder)) == 5
    assert moved_by_a_step(freeze_blocks=4, **settings)
    with pytest.raises(ValueError, match=r"nothing to train of the 5 layers .* less than 5"):
        state(freeze_blocks=blocks, **settings)


def test_the_first_block_of_a_transformer_is_its_embedding_alone() -> None:
    encoder = build_encoder("vit_tiny_patch16_224", image_size=16, seed=0)
    recipe = small_recipe("simclr").changed(
        {"init": "an encoder", "freeze_blocks": 1, "freeze_norm_layers": False}
    )
    assert freeze_init(encoder, recipe) == []
    frozen = {name for name, p in encoder.named_parameters() if not p.requires_grad}
    assert frozen == set(layer_names(encoder)[0])
    assert "backbone.pos_embed" in frozen
