"""What every entry of VIEWS must do; a new entry is tested without adding a line here."""

import copy

import pytest
import torch
from torch import Tensor

from widefield.views import VIEWS, Augmentation, AugmentContext, build_views

every_policy = pytest.mark.parametrize("name", [*VIEWS, "crop+color", "viewmaker+flip"])
SHAPES_AND_COUNTS = [
    ((5, 3, 16, 16), 2),
    ((4, 1, 16, 16), 3),
    ((3, 4, 12, 12), 2),
    ((3, 3, 13, 21), 3),
    ((1, 3, 9, 8), 1),
]
"""Shapes and numbers of views, which have nothing to do with each other: each is met once."""


def build(name: str, channels: int = 3, seed: int = 0) -> Augmentation:
    return build_views(name, channels=channels, seed=seed)


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def scene(x: Tensor) -> AugmentContext:
    """A planted object in the top left; a loss that wants gray pixels."""
    mask = torch.zeros(len(x), 1, *x.shape[-2:], dtype=torch.bool)
    mask[..., :5, :4] = True
    return AugmentContext(mask=mask, gradients=lambda views: [0.5 - view for view in views])


def draw(views: Augmentation, x: Tensor, count: int = 2, seed: int = 2) -> list[Tensor]:
    return views(x, count, torch.Generator().manual_seed(seed), scene(x))


@every_policy
@pytest.mark.parametrize(("shape", "count"), SHAPES_AND_COUNTS, ids=str)
def test_views_are_images_like_x(name: str, shape: tuple[int, ...], count: int) -> None:
    views, x = build(name, shape[1]), images(*shape)
    given = x.clone()
    drawn = draw(views, x, count)
    low, high = views.value_range
    assert len(drawn) == count
    for view in drawn:
        assert (view.shape, view.dtype, view.device) == (x.shape, x.dtype, x.device)
        assert torch.isfinite(view).all()
        assert low <= float(view.detach().min())
        assert float(view.detach().max()) <= high
    assert torch.equal(x, given)


@every_policy
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtype_is_kept(name: str, dtype: torch.dtype) -> None:
    drawn = draw(build(name), images(4, 3, 16, 16, dtype=dtype))
    assert [view.dtype for view in drawn] == [dtype] * 2


@every_policy
def test_views_hold_under_autocast(name: str) -> None:
    views, x = build(name), images(4, 3, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        drawn = draw(views, x)
    assert all(view.dtype == torch.float32 and torch.isfinite(view).all() for view in drawn)


@every_policy
def test_evaluation_draws_nothing(name: str) -> None:
    views, x, generator = build(name).eval(), images(4, 3, 16, 16), torch.Generator()
    before = generator.get_state()
    assert all(view is x for view in views(x, 3, generator))
    assert torch.equal(before, generator.get_state())


@every_policy
def test_the_generator_alone_decides(name: str) -> None:
    """The same seed gives the same views whatever the global state, which is left alone."""
    views, x = build(name), images(4, 3, 16, 16)
    before = torch.get_rng_state()
    first = draw(views, x)
    assert torch.equal(before, torch.get_rng_state())
    with torch.random.fork_rng():
        torch.manual_seed(123)
        again = draw(views, x)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    other = draw(views, x, seed=3)
    changed = any(not torch.equal(one, two) for one, two in zip(first, other, strict=True))
    assert changed == (name != "none")


@every_policy
def test_gradient_reaches_what_learns(name: str) -> None:
    views, x = build(name), images(4, 3, 16, 16)
    learned = dict(views.named_parameters())
    drawn = torch.cat(draw(views, x))
    assert drawn.requires_grad == bool(learned)
    if not learned:
        return
    (drawn * images(*drawn.shape)).sum().backward()
    for key, parameter in learned.items():
        assert parameter.grad is not None, key
        assert torch.isfinite(parameter.grad).all(), key
    assert any(float(p.grad.abs().max()) > 0 for p in learned.values() if p.grad is not None)


@every_policy
def test_a_gradient_passes_where_it_says_so(name: str) -> None:
    views, x = build(name), images(4, 3, 16, 16).requires_grad_()
    drawn = torch.cat(draw(views, x))
    if not views.passes_gradient:
        assert not drawn.requires_grad
        return
    (slope,) = torch.autograd.grad(drawn.sum(), x)
    assert float(slope.abs().max()) > 0


@pytest.mark.parametrize("name", [name for name in VIEWS if VIEWS[name].stage != "samples"])
def test_a_pixel_stays_where_it_says_so(name: str) -> None:
    """A bright square in the middle of nothing does not move."""
    views, x = build(name), torch.zeros(16, 3, 16, 16)
    x[..., 7:9, 2:4] = 1
    drawn = torch.stack(draw(views, x)).detach()
    if views.pixel_aligned:
        inside, total = drawn[..., 7:9, 2:4], drawn
        assert float(inside.mean()) > 5 * float(total.mean())
    else:
        assert float((drawn - x).abs().amax((1, 2, 3, 4)).min()) > 0.5


@every_policy
def test_what_it_needs_is_what_it_uses(name: str) -> None:
    views, x = build(name), images(4, 3, 16, 16)
    calls = []

    def gradients(at: list[Tensor]) -> list[Tensor]:
        calls.append(len(at))
        return [0.5 - view for view in at]

    mask = scene(x).mask if views.needs_mask else None
    needed = AugmentContext(mask=mask, gradients=gradients if views.gradient_calls else None)
    views(x, 2, torch.Generator().manual_seed(0), needed)
    assert calls == [2] * views.gradient_calls


@every_policy
def test_state_survives_a_checkpoint(name: str) -> None:
    original, x = build(name), images(4, 3, 16, 16)
    saved = copy.deepcopy(original.state_dict())
    restored = build(name, seed=9)
    restored.load_state_dict(saved)
    for one, two in zip(draw(original, x), draw(restored, x), strict=True):
        assert torch.equal(one, two)


@every_policy
def test_weights_come_from_the_seed_alone(name: str) -> None:
    before = torch.get_rng_state()
    one, two, other = build(name), build(name), build(name, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    weights = [dict(views.named_parameters()) for views in (one, two, other)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    if weights[0]:
        assert any(not torch.equal(weights[0][key], weights[2][key]) for key in weights[0])
