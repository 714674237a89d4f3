from pathlib import Path
from typing import Any

import pytest
import torch

from widefield import views
from widefield.views import (
    VIEWS,
    Augmentation,
    ImageAugmentation,
    StackedAugmentation,
    build_views,
    image,
)
from widefield.views.base import NO_CONTEXT


def test_expert_has_the_settings_of_s_diet() -> None:
    views = build_views("expert")
    assert isinstance(views, ImageAugmentation)
    assert (views.crop_scale, views.flip_prob) == ((0.08, 1.0), 0.5)
    assert (views.jitter, views.jitter_prob) == ((0.4, 0.4, 0.4, 0.1), 0.8)
    assert (views.grayscale_prob, views.blur_prob) == (0.2, 0.0)


def test_expert_feature_dropout_has_the_settings_of_feature_dropout() -> None:
    views = build_views("expert:feature-dropout")
    assert isinstance(views, ImageAugmentation)
    assert (views.crop_scale, views.flip_prob) == ((0.2, 1.0), 0.5)
    assert (views.jitter, views.jitter_prob) == ((0.4, 0.4, 0.4, 0.1), 0.8)
    assert (views.grayscale_prob, views.blur_prob) == (0.2, 0.5)
    assert views.blur_sigma == (0.1, 2.0)
    assert views.blur is image.pillow_blur


def test_gentler_policies_than_expert_differ_from_it_in_crop_and_mirroring_alone() -> None:
    expert = vars(build_views("expert"))
    for name, smallest in (("moderate", 0.4), ("gentle", 0.7)):
        gentler = vars(build_views(name))
        other = {key: value for key, value in gentler.items() if value != expert[key]}
        assert other == {"crop_scale": (smallest, 1.0), "flip_prob": 0.0}, name


def test_the_stacked_channel_gets_weaker_views() -> None:
    views = build_views("expert:stacked")
    assert isinstance(views, StackedAugmentation)
    assert vars(views.image).keys() == vars(views.rest).keys()
    assert views.image.crop_scale == (0.08, 1.0)
    assert (views.rest.crop_scale, views.rest.flip_prob) == ((0.75, 1.0), 0.0)
    assert (views.rest.grayscale_prob, views.rest.blur_prob) == (0.0, 0.5)


def test_channel_groups_are_drawn_apart() -> None:
    """The image is as under its own policy, whatever is stacked; the rest is never mirrored."""
    x = torch.zeros(64, 4, 16, 16)
    x[:, :, :, :8] = 1
    (view,) = build_views("expert:stacked")(x, 1, torch.Generator().manual_seed(0))
    left, right = view[..., :8].mean((2, 3)), view[..., 8:].mean((2, 3))
    assert bool((left[:, 3] > right[:, 3]).all())
    assert bool((left[:, 0] < right[:, 0]).any())
    (other,) = build_views("expert:stacked")(
        torch.cat([x[:, :3], 1 - x[:, 3:]], 1), 1, torch.Generator().manual_seed(0)
    )
    assert torch.equal(view[:, :3], other[:, :3])


def test_the_page_lists_every_policy() -> None:
    page = (Path(__file__).parents[3] / "docs" / "views.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {name.strip(" `") for cell in rows for name in cell.split(",")}
    assert set(VIEWS) <= listed


def test_none_returns_the_images() -> None:
    x = torch.rand(4, 3, 16, 16)
    first, second = build_views("none")(x, 2)
    assert torch.equal(first, x)
    assert torch.equal(second, x)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("exprt", "expert"), ("expert:stakced", "expert:stacked"), ("flop", "flip")],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, right: str) -> None:
    for name in (wrong, f"viewmaker+{wrong}"):
        with pytest.raises(ValueError, match=f"unknown views '{wrong}': did you mean '{right}'"):
            build_views(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("crop+noise:object", "the planted object would no longer be where its mask is"),
        ("flip+noise+mask-viewmaker", "views 'flip' cannot come before 'mask-viewmaker'"),
        ("adversarial+flip", "put it last"),
        ("random-mask+crop", "leave \\[0, 1\\]: put it last"),
        ("viewmaker:published+flip", "leave \\[0, 1\\]: put it last"),
        ("viewmaker+flip+color", "no gradient would come back"),
    ],
)
def test_policies_that_cannot_follow_one_another_are_refused(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build_views(name)


def test_a_chain_applies_its_parts_from_left_to_right() -> None:
    x = torch.rand(4, 3, 16, 16)
    crop, noise = build_views("crop"), build_views("noise")
    generator = torch.Generator().manual_seed(0)
    expected = noise.augment(crop(x, 2, generator), generator, NO_CONTEXT)
    chained = build_views("crop+noise")(x, 2, torch.Generator().manual_seed(0))
    assert all(torch.equal(one, two) for one, two in zip(chained, expected, strict=True))


def test_flip_mirrors_half_of_the_images_and_nothing_else() -> None:
    x = torch.rand(400, 1, 5, 7)
    (view,) = build_views("flip")(x, 1, torch.Generator().manual_seed(0))
    mirrored = (view == x.flip(-1)).flatten(1).all(1)
    kept = (view == x).flatten(1).all(1)
    assert bool((mirrored ^ kept).all())
    assert 150 < int(mirrored.sum()) < 250


def test_every_policy_says_in_one_sentence_what_it_does() -> None:
    for name, policy in VIEWS.items():
        assert policy.summary[0].isupper(), name
        assert policy.summary.endswith("."), name
        assert "\n" not in policy.summary, name


def test_everything_that_is_exported_exists_and_every_augmentation_is_exported() -> None:
    exported = {name: getattr(views, name) for name in views.__all__}
    built = {type(part) for name in VIEWS for part in build_views(name).modules()}
    for cls in built:
        assert not issubclass(cls, Augmentation) or exported[cls.__name__] is cls


@pytest.mark.parametrize("name", ["expert", "flip", "noise", "viewmaker"])
def test_bytes_are_refused(name: str) -> None:
    x = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"dtype torch.uint8: give floats in \[0, 1\]"):
        build_views(name)(x, 1)


def test_a_blur_that_does_not_exist_is_refused() -> None:
    blur: Any = "Pillow"
    with pytest.raises(ValueError, match="did you mean 'pillow'"):
        ImageAugmentation(blur=blur)
