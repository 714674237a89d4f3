import pytest
import torch

from widefield.views import VIEWS, ImageViews, Views, build_views


@pytest.mark.parametrize("name", VIEWS)
def test_every_name_builds_views_without_parameters(name: str) -> None:
    views = build_views(name)
    assert isinstance(views, Views)
    assert not list(views.parameters())
    x = torch.rand(4, 3, 16, 16)
    assert [view.shape for view in views(x, 3)] == [x.shape] * 3


def test_expert_has_the_settings_of_s_diet() -> None:
    views = build_views("expert")
    assert isinstance(views, ImageViews)
    assert (views.crop_scale, views.flip_prob) == ((0.08, 1.0), 0.5)
    assert (views.jitter, views.jitter_prob) == ((0.4, 0.4, 0.4, 0.1), 0.8)
    assert (views.grayscale_prob, views.blur_prob) == (0.2, 0.0)


def test_expert_fd_has_the_settings_of_feature_dropout() -> None:
    views = build_views("expert:fd")
    assert isinstance(views, ImageViews)
    assert (views.crop_scale, views.flip_prob) == ((0.2, 1.0), 0.5)
    assert (views.jitter, views.jitter_prob) == ((0.4, 0.4, 0.4, 0.1), 0.8)
    assert (views.grayscale_prob, views.blur_prob) == (0.2, 0.5)
    assert views.blur_sigma == (0.1, 2.0)


def test_none_returns_the_images() -> None:
    x = torch.rand(4, 3, 16, 16)
    first, second = build_views("none")(x, 2)
    assert torch.equal(first, x)
    assert torch.equal(second, x)


@pytest.mark.parametrize(("wrong", "right"), [("exprt", "expert"), ("expert:df", "expert:fd")])
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=f"unknown views '{wrong}': did you mean '{right}'"):
        build_views(wrong)
