"""A batch that passes through the encoder in parts: one loss, one gradient, a part's memory."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from runs import Killed, die_at, images, small
from small_run import batch, small_facts, small_recipe
from widefield.core.micro_batch import MicroBatched
from widefield.encoders import load_encoder
from widefield.methods import METHODS
from widefield.train.build import build
from widefield.workflows.plan import plan
from widefield.workflows.pretrain import pretrain

CPU = torch.device("cpu")


class Told(nn.Module):
    """An encoder without batch statistics that notes how many images it gets at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(3 * 16 * 16, 8), nn.Tanh(), nn.Dropout(0.3)
        )
        self.sizes: list[int] = []
        self.alive: list[weakref.ref[Tensor]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        hidden = self.net[1](self.net[0](x))
        self.alive.append(weakref.ref(hidden))
        out: Tensor = self.net[3](self.net[2](hidden))
        return out


def gradients(method: str, micro_batch: int | None) -> tuple[Tensor, dict[str, Tensor]]:
    """Return loss and gradients of one batch of 6, dropout being off, whatever the method."""
    torch.manual_seed(0)
    encoder = Told()
    encoder.net[3].p = 0.0
    recipe = small_recipe(method, batch_size=6, projector_batch_norm=False, micro_batch=micro_batch)
    model = build(recipe, small_facts(), device=CPU, encoder=encoder).model.train()
    given = batch()
    views = [given.x.flip(dim) for dim in (2, 3)][: model.method.view_count]
    torch.manual_seed(1)
    total, _ = model(views, given.index)
    total.backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert max(encoder.sizes) <= (micro_batch or 12)
    return total.detach(), found


@pytest.mark.parametrize("method", sorted(METHODS))
def test_loss_and_gradient_are_those_of_the_whole_batch(method: str) -> None:
    whole, expected = gradients(method, None)
    loss, found = gradients(method, 2)
    torch.testing.assert_close(loss, whole)
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, msg=name)


@pytest.mark.parametrize(("micro_batch", "most"), [(2, 2), (None, 6)])
@pytest.mark.parametrize("method", ["byol", "moco"])
def test_a_target_network_gets_as_few_images_at_a_time(
    method: str, micro_batch: int | None, most: int
) -> None:
    """Its batch statistics are those of as many images; the control is a whole batch."""
    recipe = small_recipe(method, batch_size=6, micro_batch=micro_batch)
    model = build(recipe, small_facts(), device=CPU, encoder=Told()).model.train()
    target = model.method.target.encoder
    target.sizes.clear()  # of what was tried on the network that it is a copy of
    given = batch()
    model([given.x, given.x.flip(2)], given.index)
    assert max(target.sizes) == most
    assert sum(target.sizes) == 6


def test_small_batches_would_give_another_loss() -> None:
    """The control: a mean over batches of two does not tell six examples apart."""
    whole, _ = gradients("simclr", None)
    recipe = small_recipe("simclr", batch_size=6, projector_batch_norm=False)
    torch.manual_seed(0)
    encoder = Told()
    encoder.net[3].p = 0.0
    model = build(recipe, small_facts(), device=CPU, encoder=encoder).model.train()
    given = batch()
    views = [given.x.flip(dim) for dim in (2, 3)]
    few = [model([v[i : i + 2] for v in views], given.index[i : i + 2])[0] for i in (0, 2, 4)]
    assert abs(torch.stack(few).mean() - whole) > 0.1


@pytest.mark.parametrize(("most", "sizes"), [(2, [2, 2, 2]), (4, [3, 3]), (5, [3, 3]), (6, [6])])
def test_parts_are_as_equal_as_can_be(most: int, sizes: list[int]) -> None:
    encoder = Told()
    MicroBatched(encoder, max_size=most)(torch.rand(6, 3, 16, 16))
    assert encoder.sizes == sizes


def test_dropout_is_the_same_when_a_part_is_computed_again() -> None:
    encoder, x = Told(), torch.rand(6, 3, 16, 16)
    features = MicroBatched(encoder, max_size=2)(x)
    features.sum().backward()
    weight = encoder.net[1].weight
    found, weight.grad = weight.grad, None
    # Where dropout left nothing of an element, it has no gradient: both passes must agree on it.
    kept = (features != 0).float() / 0.7
    (kept * encoder.net[2](encoder.net[1](encoder.net[0](x)))).sum().backward()
    torch.testing.assert_close(found, weight.grad)


@pytest.mark.parametrize(("most", "held"), [(2, 0), (6, 1)])
def test_no_activations_are_held_between_the_passes(most: int, held: int) -> None:
    """The control is a part that is the whole batch."""
    encoder = Told()
    features = MicroBatched(encoder, max_size=most)(torch.rand(6, 3, 16, 16))
    gc.collect()
    assert sum(ref() is not None for ref in encoder.alive) <= held
    assert features.grad_fn is not None


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_move_once_for_each_part(momentum: float | None) -> None:
    """Without momentum they are means over all batches so far, which are counted."""
    torch.manual_seed(0)
    norm, other = (nn.BatchNorm1d(4, momentum=momentum) for _ in range(2))
    for x in torch.rand(2, 6, 4):
        MicroBatched(norm, max_size=2)(x).sum().backward()
        for part in x.split(2):
            other(part)
    for name, expected in other.state_dict().items():
        assert torch.equal(norm.state_dict()[name], expected), name
    assert norm.momentum == other.momentum


def test_batch_statistics_that_are_not_kept_pass_in_parts() -> None:
    norm = nn.BatchNorm1d(4, track_running_stats=False)
    MicroBatched(norm, max_size=2)(torch.rand(6, 4)).sum().backward()
    assert norm.num_batches_tracked is None


def test_weights_stand_once_in_a_checkpoint() -> None:
    parts, plain = (
        build(small_recipe("simclr", micro_batch=m), small_facts(), device=CPU).model
        for m in (2, None)
    )
    assert parts.state_dict().keys() == plain.state_dict().keys()
    assert len(list(parts.parameters())) == len(list(plain.parameters()))


@pytest.mark.parametrize("method", ["view-contrast", "byol"])
def test_a_run_in_parts_resumes_bit_for_bit(tmp_path: Path, method: str) -> None:
    settings = {**small(method), "micro_batch": 4, "epochs": 2, "checkpoint_every": 1}
    pretrain(images(), out=tmp_path / "whole", **settings)
    with pytest.raises(Killed):
        pretrain(images(), out=tmp_path / "cut", on_step=die_at(6), **settings)
    pretrain(images(), out=tmp_path / "cut", resume=True, quiet=True)
    whole, cut = (load_encoder(tmp_path / run).state_dict() for run in ("whole", "cut"))
    assert all(torch.equal(value, cut[name]) for name, value in whole.items())


def test_a_plan_counts_the_activations_of_a_part() -> None:
    settings = small("simclr")
    settings.pop("quiet")
    whole, parts = (plan(images(), micro_batch=m, **settings) for m in (None, 4))
    ratio = parts.parts["activations"].bytes / whole.parts["activations"].bytes
    assert ratio < 0.5


@pytest.mark.parametrize(("examples", "sizes"), [(2, [2]), (3, [3]), (5, [3, 2]), (8, [2] * 4)])
def test_no_example_is_left_alone(examples: int, sizes: list[int]) -> None:
    """Batch normalization over one example has nothing to normalize over."""
    seen: list[int] = []
    norm = nn.BatchNorm1d(4)
    norm.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    MicroBatched(norm, max_size=2)(torch.rand(examples, 4, requires_grad=True))
    assert seen == sizes


@pytest.mark.parametrize(
    ("method", "size"), [("s-diet", "micro_batch"), ("diet", "batch_size"), ("byol", "batch_size")]
)
def test_lone_examples_that_batch_norm_cannot_take_are_refused(method: str, size: str) -> None:
    facts = small_facts()
    settings = {"projector_batch_norm": False} if method == "byol" else {}
    small_enough = {"encoder": "resnet18", "stem": "native", **settings}  # a map of 1 x 1
    with pytest.raises(ValueError, match=f"choose a {size} of 2 or more"):
        build(small_recipe(method, **{size: 1}, **small_enough), facts, device=CPU)
    build(small_recipe(method, **{size: 2}, **small_enough), facts, device=CPU)
    build(small_recipe(method, **{size: 1}, encoder="resnet-tiny", **settings), facts, device=CPU)
