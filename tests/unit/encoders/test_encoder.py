import json
import math
import socket
from dataclasses import asdict

import pytest
import timm
import torch
from torch import nn

from widefield.core.form import InputSpec
from widefield.encoders import Encoder, build_encoder, encoder_config

FAMILIES = {
    # name: stem at 32 pixels, dim, shape of the features before pooling
    "resnet-tiny": ("small", 128, (128, 4, 4)),
    "resnet18": ("small", 512, (512, 4, 4)),
    "resnet50": ("small", 2048, (2048, 4, 4)),
    "vit_tiny_patch16_224": ("small", 192, (65, 192)),
    "convnext_atto": ("small", 320, (320, 4, 4)),
    "mobilenetv3_small_050": ("native", 1024, (288, 1, 1)),
    "regnetx_002": ("native", 368, (368, 1, 1)),
    "alexnet": ("native", 256, (256, 4, 4)),
    "wide-resnet-34-5": ("native", 320, (320, 8, 8)),
}

HEAVY = ("resnet18", "resnet50", "wide-resnet-34-5")
LIGHT = [name for name in FAMILIES if name not in HEAVY]


def images(channels: int = 3, size: int = 32) -> torch.Tensor:
    return torch.rand(2, channels, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "channels"),
    [(name, 3) for name in FAMILIES]
    + [(name, 1) for name in LIGHT]
    + [(name, 4) for name in LIGHT],
)
def test_families_at_32_pixels(name: str, channels: int) -> None:
    stem, dim, before_pooling = FAMILIES[name]
    encoder = build_encoder(name, channels=channels, seed=0).eval()
    x = images(channels)
    h = encoder(x)
    assert encoder.config.stem == stem
    assert h.shape == (2, dim)
    assert encoder.dim == dim
    assert encoder.feature_map(x).shape == (2, *before_pooling)
    assert torch.equal(encoder(x), h), "evaluation is deterministic"


@pytest.mark.parametrize("name", LIGHT)
def test_gradients_reach_every_weight_and_the_images(name: str) -> None:
    # At 64 pixels, as the last maps of the native stems are one pixel at 32: too few to normalize.
    encoder = build_encoder(name, image_size=64, seed=0)
    x = images(size=64).requires_grad_()
    encoder(x).pow(2).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    assert [n for n, p in encoder.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("name", ["resnet-tiny", "resnet18", "resnet26t"])
def test_small_resnets_keep_every_pixel_up_to_the_second_stage(name: str) -> None:
    backbone = build_encoder(name, channels=4, seed=0).backbone
    assert isinstance(backbone.conv1, nn.Conv2d)
    assert (backbone.conv1.kernel_size, backbone.conv1.stride) == ((3, 3), (1, 1))
    assert backbone.conv1.in_channels == 4
    assert isinstance(backbone.maxpool, nn.Identity)
    # Kaiming, fan out: variance 2 / (out_channels * 9), as timm's other convolutions.
    expected = (2 / (backbone.conv1.out_channels * 9)) ** 0.5
    assert backbone.conv1.weight.std().item() == pytest.approx(expected, rel=0.15)


def test_resnet_tiny_is_tiny() -> None:
    encoder = build_encoder("resnet-tiny", seed=0)
    assert sum(p.numel() for p in encoder.parameters()) < 320_000
    assert next(m.out_channels for m in encoder.modules() if isinstance(m, nn.Conv2d)) == 16


@pytest.mark.parametrize(
    ("size", "patch"), [(32, (4, 4)), (64, (8, 8)), (65, (16, 16)), (224, (16, 16))]
)
def test_patches_are_an_eighth_of_a_small_image(size: int, patch: tuple[int, int]) -> None:
    encoder = build_encoder("vit_tiny_patch16_224", image_size=size, seed=0)
    projection = encoder.backbone.patch_embed.proj  # type: ignore[union-attr]
    assert projection.kernel_size == patch
    assert encoder.config.stem == ("small" if size <= 64 else "native")


def test_larger_images_get_timms_stem() -> None:
    config = encoder_config("resnet18", InputSpec(image_size=96))
    assert (config.stem, config.conv1) == ("native", None)
    ours = build_encoder("resnet18", image_size=96, seed=0).backbone
    theirs = timm.create_model("resnet18", num_classes=0)
    assert str(ours) == str(theirs)


def test_a_seed_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="seed must be a whole number, got None"):
        build_encoder("resnet-tiny", seed=None)  # type: ignore[arg-type]


def test_the_seed_decides_the_weights_and_the_global_state_stays() -> None:
    torch.manual_seed(123)
    state = torch.get_rng_state()
    first = build_encoder("resnet-tiny", seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)
    again, other = (build_encoder("resnet-tiny", seed=seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["backbone.conv1.weight"], other["backbone.conv1.weight"])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_normalization_is_the_encoders_first_operation(memory_format: torch.memory_format) -> None:
    mean, std = (0.1, 0.5, 0.7), (0.2, 0.25, 0.5)
    encoder = build_encoder("resnet-tiny", mean=mean, std=std, seed=0).eval()
    x = images().contiguous(memory_format=memory_format)
    y = encoder.normalize(x)
    expected = torch.stack([(x[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(y, expected, atol=1e-6, rtol=0)
    assert y.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(encoder(x), encoder.backbone(y), atol=0, rtol=0)
    assert not any(b.requires_grad for b in encoder.buffers())
    assert all(key.startswith("backbone.") for key in encoder.state_dict())


def test_the_configuration_is_json_and_rebuilds_the_encoder() -> None:
    config = build_encoder("resnet-tiny", channels=1, seed=0).config
    assert json.loads(json.dumps(asdict(config))) == {
        **asdict(config),
        "image_size": [32, 32],
        "mean": [0.5],
        "std": [0.25],
    }
    assert config == encoder_config("resnet-tiny", InputSpec(channels=1))


def test_nothing_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an encoder opened a connection")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert isinstance(build_encoder("vit_tiny_patch16_224", seed=0), Encoder)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("resnet_18", "resnet18"),
        ("resnet-tny", "resnet-tiny"),
        ("vit_tiny_patch16", "vit_tiny"),
        ("alex-net", "alexnet"),
        ("wide-resnet-34-10", "wide-resnet-34-5"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(ValueError, match=rf"unknown encoder '{wrong}': did you mean '{right}"):
        build_encoder(wrong, seed=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"channels": 0},
        {"image_size": 4},
        {"mean": (0.5,)},
        {"std": (0.1, 0.2)},
        {"std": (0.1, 0.2, 0.0)},
        {"std": (0.1, 0.2, math.nan)},
        {"mean": (0.1, math.inf, 0.2)},
        {"channels": 1, "mean": (0.5, 0.5, 0.5)},
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"channel") as refused:
        build_encoder("resnet-tiny", seed=0, **settings)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        # 4 x 16 patches got the positions of 8 x 8.
        ("convit_tiny", (64, 256), "takes squares, not 64x256 pixels"),
        ("torchvision:maxvit_t", 96, "not 96x96 pixels: choose an image_size that 224 divides"),
        ("torchvision:maxvit_t", (224, 448), "takes squares of whole windows"),
    ],
)
def test_sizes_that_a_network_cannot_take_are_refused(
    name: str, size: int | tuple[int, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build_encoder(name, image_size=size, seed=0)
