"""An encoder carried over to other images, against what its weights say."""

from dataclasses import replace

import pytest
import torch
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor

from widefield.core.form import Form
from widefield.encoders import Encoder, adapt_encoder, build_encoder
from widefield.encoders.encoder import build_from_config

MEAN, STD = (0.2, 0.4, 0.6), (0.1, 0.2, 0.3)


def encoder(name: str = "resnet-tiny", channels: int = 3, size: int = 32) -> Encoder:
    mean, std = MEAN[:channels], STD[:channels]
    built = build_encoder(name, channels=channels, image_size=size, mean=mean, std=std, seed=1)
    return built.eval()


def x(channels: int, size: int) -> Tensor:
    return torch.rand(2, channels, size, size, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_for_the_same_images_it_is_a_copy() -> None:
    before = encoder()
    after, notes = adapt_encoder(before, Form(channels=3, size=(32, 32)))
    assert notes == ()
    assert after is not before
    assert after.config == before.config
    assert torch.equal(after(x(3, 32)), before(x(3, 32)))


@torch.no_grad()
@pytest.mark.parametrize("name", ["resnet-tiny", "alexnet", "torchvision:mobilenet_v2"])
def test_convolutions_are_the_same_at_any_size(name: str) -> None:
    before = encoder(name)
    after, notes = adapt_encoder(before, Form(channels=3, size=(40, 48)))
    assert notes == ()
    assert after.config.image_size == (40, 48)
    assert torch.equal(after(x(3, 48)), before(x(3, 48)))


@torch.no_grad()
def test_gray_images_are_read_as_if_in_equal_channels() -> None:
    """Where mean and deviation of the channels are equal, exactly so."""
    before = build_encoder("resnet-tiny", mean=(0.4,) * 3, std=(0.2,) * 3, seed=1).eval()
    after, notes = adapt_encoder(before, Form(channels=1, size=(32, 32)))
    assert notes == ("3 channels became 1: the first layer is summed over them",)
    gray = x(1, 32)
    torch.testing.assert_close(after(gray), before(gray.expand(-1, 3, -1, -1)))
    assert after.config.mean == pytest.approx((0.4,))


@torch.no_grad()
@pytest.mark.parametrize("channels", [2, 4, 7])
def test_further_channels_repeat_the_first_at_the_same_sum(channels: int) -> None:
    before = encoder()
    after, _ = adapt_encoder(before, Form(channels=channels, size=(32, 32)))
    old, new = (e.backbone.conv1.weight for e in (before, after))
    for c in range(channels):
        torch.testing.assert_close(new[:, c], 3 / channels * old[:, c % 3])
    assert after.config.mean == tuple(MEAN[c % 3] for c in range(channels))
    assert after(x(channels, 32)).shape == (2, 128)


@torch.no_grad()
def test_colors_for_an_encoder_of_gray_images() -> None:
    before = encoder(channels=1)
    after, _ = adapt_encoder(before, Form(channels=3, size=(32, 32)))
    gray = x(1, 32)
    torch.testing.assert_close(after(gray.expand(-1, 3, -1, -1)), before(gray))


@torch.no_grad()
def test_position_embeddings_are_resampled() -> None:
    before = build_encoder("vit_tiny_patch16_224", stem="native", image_size=64, seed=0)
    # A pattern that is linear over the image stays linear, away from its border.
    ramp = torch.arange(4.0)
    grid = (ramp[:, None] + 10 * ramp[None, :]).reshape(1, 16, 1)
    before.backbone.pos_embed[:, 1:] = grid
    after, notes = adapt_encoder(before, Form(channels=3, size=(64, 128)))
    assert notes == ("17 position embeddings became 33: resampled",)
    new = after.backbone.pos_embed
    torch.testing.assert_close(new[:, :1], before.backbone.pos_embed[:, :1])
    places = new[0, 1:, 0].reshape(4, 8)
    torch.testing.assert_close(places[:, 3:5].mean(1), ramp + 15, atol=0.2, rtol=0)
    assert (places[:, 1:] > places[:, :-1]).all()
    assert after.eval()(torch.rand(1, 3, 64, 128)).shape == (1, 192)


@torch.no_grad()
def test_torchvisions_transformers_too() -> None:
    before = build_encoder("torchvision:vit_b_32", image_size=64, seed=0)
    after, notes = adapt_encoder(before, Form(channels=3, size=(96, 96)))
    assert notes == ("5 position embeddings became 10: resampled",)
    assert after.eval()(torch.rand(1, 3, 96, 96)).shape == (1, 768)


@torch.no_grad()
def test_patches_are_resampled_where_the_small_stem_changes() -> None:
    before = encoder("vit_tiny_patch16_224", size=32)
    after, notes = adapt_encoder(before, Form(channels=3, size=(64, 64)))
    assert notes == ("patches of 4x4 pixels became 8x8: resampled",)
    flat = torch.full((1, 3, 32, 32), 0.7)
    large = torch.full((1, 3, 64, 64), 0.7)
    torch.testing.assert_close(after(large), before(flat), rtol=1e-3, atol=1e-3)


def test_weights_for_one_size_alone_are_named() -> None:
    before = encoder("swin_tiny_patch4_window7_224", size=224)
    with pytest.raises(ValueError, match=r"another size: '.*' has shape .* give 224"):
        adapt_encoder(before, Form(channels=3, size=(64, 64)))


@torch.no_grad()
def test_a_first_layer_that_is_padded_otherwise_stays_so() -> None:
    before = encoder("resnet18", size=32)
    padded = build_from_config(
        replace(before.config, conv1={**(before.config.conv1 or {}), "padding": 2})
    )
    for size in (32, 40):
        after, _ = adapt_encoder(padded, Form(channels=3, size=(size, size)))
        torch.testing.assert_close(after.eval()(x(3, size)), padded.eval()(x(3, size)))


def test_positions_behind_the_stem_of_a_resnet_are_resampled_on_their_own_grid() -> None:
    start = build_encoder("vit_tiny_r_s16_p8_224", image_size=224, stem="native", seed=0).eval()
    adapted, notes = adapt_encoder(start, Form(channels=3, size=(96, 160)))
    assert notes == ("50 position embeddings became 16: resampled",)
    before, after = (each.backbone.pos_embed for each in (start, adapted))
    assert torch.equal(after, resample_abs_pos_embed(before, [3, 5], [7, 7], num_prefix_tokens=1))


def test_positions_of_four_dimensions_are_not_taken_for_patches() -> None:
    start = build_encoder("pit_ti_224", image_size=224, seed=0)
    with pytest.raises(ValueError, match="cannot be adapted to images of another size: 'pos_embed"):
        adapt_encoder(start, Form(channels=3, size=(96, 96)))
