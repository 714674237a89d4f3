"""The viewmaker as the paper describes it, and each quirk of the published one by itself."""

import pytest
import torch
from torch import Tensor, nn

from axes import each_value
from draws import generator
from widefield.views import NO_CONTEXT, AugmentContext, Viewmaker, build_views
from widefield.views.viewmaker import ViewmakerNet


def viewmaker(name: str = "viewmaker", channels: int = 3, **settings: object) -> Viewmaker:
    views = build_views(name, channels=channels, **settings)
    assert isinstance(views, Viewmaker)
    return views


def middle(*shape: int) -> Tensor:
    """Images far from 0 and 1, so that clamping changes nothing."""
    return 0.4 + 0.2 * torch.rand(shape, generator=generator(1))


@torch.no_grad()
def deltas(
    views: Viewmaker, x: Tensor, count: int = 2, context: AugmentContext = NO_CONTEXT
) -> Tensor:
    drawn = views(x, count, generator(2), context)
    return torch.stack([view - x for view in drawn])


@each_value(("channels", [1, 3, 4]), ("budget", [0.01, 0.05]))
def test_views_lie_on_the_l1_sphere(channels: int, budget: float) -> None:
    views = viewmaker(channels=channels, viewmaker_budget=budget, viewmaker_clamp=False)
    size = deltas(views, middle(4, channels, 13, 22)).abs().mean((2, 3, 4))
    torch.testing.assert_close(size, torch.full_like(size, budget), rtol=1e-4, atol=0)


def test_the_ball_keeps_small_changes_and_shortens_large_ones() -> None:
    views = viewmaker(viewmaker_shape="ball", viewmaker_budget=0.05)
    small, large = torch.full((1, 3, 8, 8), 0.01), torch.full((1, 3, 8, 8), -0.8)
    on = views.on_budget(torch.cat([small, large, 0 * small]))
    torch.testing.assert_close(on[:1], small)
    torch.testing.assert_close(on[1:2], torch.full_like(large, -0.05))
    assert torch.equal(on[2:], 0 * small)


def test_the_sphere_takes_no_change_as_none() -> None:
    zero = torch.zeros(2, 3, 8, 8)
    assert torch.equal(viewmaker().on_budget(zero), zero)


def test_views_are_clamped_where_told() -> None:
    x = torch.ones(4, 3, 16, 16)
    drawn = [torch.cat(viewmaker(viewmaker_clamp=c)(x, 2, generator())) for c in (True, False)]
    assert float(drawn[0].detach().max()) <= 1 < float(drawn[1].detach().max())
    assert torch.equal(drawn[0], drawn[1].clamp(0, 1))


def test_each_view_and_each_image_has_noise_of_its_own() -> None:
    x = middle(1, 3, 16, 16).expand(4, 3, 16, 16)
    changed = deltas(viewmaker(), x).flatten(0, 1)
    for i in range(len(changed)):
        for j in range(i):
            assert not torch.allclose(changed[i], changed[j], atol=1e-4)


def test_new_noise_enters_before_the_network_and_before_each_residual_block() -> None:
    net, seen = ViewmakerNet(3), list[Tensor]()

    def keep(_: nn.Module, given: tuple[Tensor]) -> None:
        seen.append(given[0][:, -1].detach())

    for block in (net.down_1, *net.residual):
        block.register_forward_pre_hook(keep)
    net(middle(8, 3, 32, 32), generator())
    assert len(seen) == 4
    for noise in seen:
        assert float(noise.mean()) == pytest.approx(0.5, abs=0.03)
        assert float(noise.std()) == pytest.approx(12**-0.5, rel=0.05)
    assert not torch.equal(seen[1], seen[2])
    assert not torch.equal(seen[2], seen[3])


def test_an_image_does_not_depend_on_the_rest_of_the_batch() -> None:
    views, x = viewmaker(viewmaker_clamp=False), middle(3, 3, 16, 16)
    y = views.net.eval()(x, generator())
    noise_first = x.clone()
    noise_first[1:] = 0
    torch.testing.assert_close(views.net(noise_first, generator())[:1], y[:1])


def published_parameters(channels: int) -> int:
    """Weights of the published network without its unused blocks, counted by hand."""

    def conv(i: int, o: int, k: int = 3) -> int:
        return i * o * k * k + o

    def norm(c: int) -> int:
        return 2 * c

    down = conv(channels + 1, 32, 9) + conv(32, 64) + conv(64, 128) + norm(32 + 64 + 128)
    residual = sum(2 * conv(w, w) + 2 * norm(w) for w in (129, 130, 131))
    up = conv(131, 64) + conv(64, 32) + norm(64 + 32) + conv(32, channels, 9)
    return down + residual + up


@pytest.mark.parametrize("channels", [1, 3])
def test_the_network_has_the_used_blocks_alone(channels: int) -> None:
    net = ViewmakerNet(channels)
    assert sum(p.numel() for p in net.parameters()) == published_parameters(channels)
    net(torch.rand(2, channels, 16, 16)).square().sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    assert [c.stride for c in convolutions if c.stride != (1, 1)] == [(2, 2)] * 2
    assert {c.padding_mode for c in convolutions} == {"reflect"}
    norms = [m for m in net.modules() if isinstance(m, nn.InstanceNorm2d)]
    assert len(norms) == 11
    assert all(n.affine and not n.track_running_stats for n in norms)


@pytest.mark.parametrize("size", [(5, 5), (7, 31), (32, 32), (33, 18)])
def test_any_aspect_ratio(size: tuple[int, int]) -> None:
    x = torch.rand(2, 3, *size)
    assert ViewmakerNet(3)(x).shape == x.shape


def test_images_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 5 pixels a side; these are 4x9"):
        viewmaker()(torch.rand(2, 3, 4, 9), 1)


def test_the_object_is_spared() -> None:
    x, mask = middle(4, 3, 16, 16), torch.zeros(4, 1, 16, 16, dtype=torch.bool)
    mask[..., 3:9, 5:12] = True
    changed = deltas(viewmaker("mask-viewmaker"), x, 3, AugmentContext(mask=mask))
    free = deltas(viewmaker(), x, 3)
    inside = mask.expand_as(changed)
    assert torch.equal(changed[inside], torch.zeros_like(changed[inside]))
    assert torch.equal(changed[~inside], free[~inside])
    assert float((free[inside] != 0).float().mean()) > 0.9


# Quirks of the published viewmaker that live in the views


def test_published_views_fall_short_of_their_budget() -> None:
    """1e-4 beside the mean: a change of that size gets half of its budget."""
    ours, theirs = viewmaker(), viewmaker("viewmaker:published")
    d = torch.full((1, 3, 8, 8), 1e-4)
    torch.testing.assert_close(theirs.on_budget(d), torch.full_like(d, 0.025))
    torch.testing.assert_close(ours.on_budget(d), torch.full_like(d, 0.05))


def test_published_views_are_not_clamped() -> None:
    x = torch.ones(4, 3, 16, 16)
    drawn = torch.cat(viewmaker("viewmaker:published")(x, 2, generator()))
    assert float(drawn.detach().max()) > 1


def test_published_views_lie_on_the_sphere_and_have_no_other_shape() -> None:
    views = viewmaker("viewmaker:published")
    d = torch.full((1, 3, 8, 8), 1e-3)
    torch.testing.assert_close(views.on_budget(d), torch.full_like(d, 0.05 / 1.1))
    for setting in ({"viewmaker_shape": "ball"}, {"viewmaker_clamp": True}):
        with pytest.raises(ValueError, match="unknown setting of views 'viewmaker:published'"):
            viewmaker("viewmaker:published", **setting)
