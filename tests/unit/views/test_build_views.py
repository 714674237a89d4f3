import pytest
import torch

from widefield.views import ImageViews, build_views


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


def test_any_part_of_a_chain_is_checked() -> None:
    with pytest.raises(ValueError, match="unknown views 'flop': did you mean 'flip'"):
        build_views("viewmaker+flop")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("crop+noise:object", "the planted object would no longer be where its mask is"),
        ("flip+noise+mask-viewmaker", "views 'flip' cannot come before 'mask-viewmaker'"),
        ("adversarial+flip", "put it last"),
        ("random-mask+crop", "leave \\[0, 1\\]: put it last"),
        ("viewmaker:as_published+flip", "leave \\[0, 1\\]: put it last"),
        ("viewmaker+flip+colour", "no gradient would come back"),
    ],
)
def test_policies_that_cannot_follow_one_another_are_refused(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build_views(name)


def test_a_chain_applies_its_parts_from_left_to_right() -> None:
    x = torch.rand(4, 3, 16, 16)
    crop, noise = build_views("crop"), build_views("noise")
    generator = torch.Generator().manual_seed(0)
    expected = noise.alter(crop(x, 2, generator), generator)
    chained = build_views("crop+noise")(x, 2, torch.Generator().manual_seed(0))
    assert all(torch.equal(one, two) for one, two in zip(chained, expected, strict=True))


def test_flip_mirrors_half_of_the_images_and_nothing_else() -> None:
    x = torch.rand(400, 1, 5, 7)
    (view,) = build_views("flip")(x, 1, torch.Generator().manual_seed(0))
    mirrored = (view == x.flip(-1)).flatten(1).all(1)
    kept = (view == x).flatten(1).all(1)
    assert bool((mirrored ^ kept).all())
    assert 150 < int(mirrored.sum()) < 250
