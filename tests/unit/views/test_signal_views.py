"""Views of windows and waveforms: what they change, by brute force, and what they leave."""

import pytest
import torch
from torch import Tensor

from draws import generator
from widefield.views import Chain, ViewSettings, build_views


def batch(n: int = 64, channels: int = 3, steps: int = 64) -> Tensor:
    units = torch.tensor([1.0, 100.0, 1e-3])[:channels].view(1, -1, 1, 1)
    return 7 + units * torch.randn(n, channels, 1, steps, generator=generator(9))


def test_jitter_is_relative_to_each_channel() -> None:
    x = batch(512).double()
    (view,) = build_views("jitter", jitter_std=0.2)(x, 1, generator())
    noise = (view - x).std((0, 2, 3)) / x.std((0, 2, 3))
    torch.testing.assert_close(noise, torch.full_like(noise, 0.2), rtol=0.03, atol=0)


def test_scale_is_one_gain_a_channel() -> None:
    x = batch(2000).double()
    (view,) = build_views("scale", scale_spread=0.3)(x, 1, generator())
    mean = x.mean((0, 2, 3), keepdim=True)
    gain = (view - mean) / (x - mean)
    torch.testing.assert_close(gain, gain[..., :1].expand_as(gain))
    assert gain[..., 0].log().std() == pytest.approx(0.3, rel=0.05)
    assert abs(float(torch.corrcoef(gain[:, :, 0, 0].T)[0, 1])) < 0.1


@pytest.mark.parametrize("name", ["jitter", "scale", "time-mask", "channel-drop"])
def test_views_do_not_depend_on_the_zero_point_of_the_sensor(name: str) -> None:
    x = batch().double()
    (view,), (moved,) = (build_views(name)(x + offset, 1, generator()) for offset in (0, 1000))
    torch.testing.assert_close(moved - 1000, view)


def test_a_time_mask_covers_one_run_in_all_channels() -> None:
    x = batch(400).double()
    (view,) = build_views("time-mask", time_mask=0.5)(x, 1, generator())
    covered = (view == x.mean((2, 3), keepdim=True)) & (view != x)
    assert torch.equal(covered.all(1), covered.any(1))
    assert torch.equal(view[~covered], x[~covered])
    row = covered[:, 0, 0].int()
    edges = row.diff(dim=1).abs().sum(1) + row[:, 0] + row[:, -1]
    assert set(edges.tolist()) <= {0, 2}
    share = row.float().mean(1)
    assert float(share.max()) <= 0.5 + 1 / 64
    assert float(share.mean()) == pytest.approx(0.25, abs=0.02)


def test_channels_are_dropped_and_one_is_left() -> None:
    x = batch(4000).double()
    (view,) = build_views("channel-drop", channel_drop=0.5)(x, 1, generator())
    dropped = (view == x.mean((2, 3), keepdim=True)).all(3)[:, :, 0]
    assert torch.equal(view[~dropped], x[~dropped])
    assert not dropped.all(1).any()
    # Each is dropped with 1/2, unless all three are: then one of them is left.
    assert float(dropped.float().mean()) == pytest.approx(1 / 2 - 1 / 24, abs=0.01)


def test_expert_is_the_usual_chain_of_windows() -> None:
    views = ViewSettings().build(channels=3, kind="windows")
    named = ViewSettings.named("jitter+scale+time-mask").build(channels=3, kind="windows")
    assert isinstance(views, Chain)
    for one, two in zip(
        views(batch(), 2, generator()), named(batch(), 2, generator()), strict=True
    ):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", ["crop", "viewmaker", "specaug", "jitter+flip"])
def test_views_of_images_are_refused_for_windows(name: str) -> None:
    with pytest.raises(ValueError, match=r"do not change windows .* choose from none, jitter"):
        ViewSettings.named(name).build(channels=3, kind="windows")
