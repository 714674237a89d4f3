"""Views that leave the last channels of the images as they are."""

import pytest
import torch
from torch import Tensor

from axes import each_value
from widefield.views import VIEWS, AugmentContext, KeepChannels, ViewSettings, build_views

POLICIES = [name for name, policy in VIEWS.items() if policy.stage in ("image", "picture", "any")]
B, C, KEPT = 6, 3, 4


def half(parts: list[Tensor]) -> list[Tensor]:
    """A gradient of a loss by each view: it falls where a pixel is above 1/2."""
    return [0.5 - x for x in parts]


def context(channels: int) -> AugmentContext:
    """A mask of some pixels of every channel, and a gradient."""
    mask = torch.zeros(B, channels, 16, 16, dtype=torch.bool)
    mask[:, :, 4:9, 5:12] = True
    return AugmentContext(mask=mask, gradients=half)


@each_value(("mask_channels", [1, C + KEPT]), ("name", POLICIES))
def test_the_image_has_its_own_views_and_the_bits_are_kept(name: str, mask_channels: int) -> None:
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(B, C, 16, 16, generator=generator)
    bits = torch.randint(0, 2, (B, KEPT, 1, 1), generator=generator).expand(-1, -1, 16, 16)
    x = torch.cat([image, bits.float()], dim=1)
    policy = ViewSettings.named(name)
    kept = policy.build(channels=C + KEPT, kept=KEPT)
    assert isinstance(kept, KeepChannels)
    with torch.no_grad():
        views = kept(x, 2, torch.Generator().manual_seed(0), context(mask_channels))
        expected = policy.build(channels=C)(image, 2, torch.Generator().manual_seed(0), context(C))
    for view, own in zip(views, expected, strict=True):
        assert torch.equal(view[:, C:], x[:, C:])
        torch.testing.assert_close(view[:, :C], own, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["expert", "noise", "adversarial", "viewmaker"])
def test_other_views_change_the_bits(name: str) -> None:
    """The control: without `kept` the same policies change the same channels."""
    x = torch.ones(B, C + KEPT, 16, 16)
    with torch.no_grad():
        (view,) = build_views(name, channels=C + KEPT)(
            x, 1, torch.Generator().manual_seed(0), context(C + KEPT)
        )
    assert not torch.equal(view[:, C:], x[:, C:])


def test_the_gradient_is_that_of_whole_views() -> None:
    """An attack sees the loss of views with their bits, and changes the image alone."""
    seen: list[torch.Size] = []

    def gradients(parts: list[Tensor]) -> list[Tensor]:
        seen.extend(part.shape for part in parts)
        assert all(bool((part[:, C:] == 1).all()) for part in parts)
        return half(parts)

    views = ViewSettings.named("adversarial").build(channels=C + KEPT, kept=KEPT)
    views(torch.ones(B, C + KEPT, 16, 16), 2, None, AugmentContext(gradients=gradients))
    assert set(seen) == {torch.Size((B, C + KEPT, 16, 16))}


@pytest.mark.parametrize("name", ["mask-viewmaker", "adversarial", "random-mask", "crop+noise"])
def test_it_needs_what_its_part_needs(name: str) -> None:
    policy = ViewSettings.named(name)
    kept, own = policy.build(channels=C + KEPT, kept=KEPT), policy.build(channels=C)
    for attribute in (
        "needs_mask",
        "gradient_calls",
        "pixel_aligned",
        "complementary_pairs",
        "passes_gradient",
        "value_range",
        "any_input_range",
    ):
        assert getattr(kept, attribute) == getattr(own, attribute), attribute
