"""The stem that the settings ask for is the stem that is built, or the refusal says why not."""

import dataclasses

import pytest
import timm
import torch
from torch import nn

from widefield.core.form import InputSpec
from widefield.encoders import EncoderSettings, build_encoder

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224", "convnext_atto"])
def test_native_is_timms_own_stem_on_small_images(name: str) -> None:
    encoder = EncoderSettings(name=name, stem="native").build(InputSpec(image_size=32), seed=0)
    first = next(m for m in encoder.backbone.modules() if isinstance(m, nn.Conv2d))
    timms = next(m for m in timm.create_model(name).modules() if isinstance(m, nn.Conv2d))
    assert str(first) == str(timms)
    assert (encoder.config.stem, encoder.config.conv1) == ("native", None)
    assert encoder(torch.rand(2, 3, 32, 32)).shape == (2, encoder.dim)


def test_small_is_a_3x3_convolution_without_pooling_on_large_images() -> None:
    encoder = EncoderSettings(name="resnet18", stem="small").build(
        InputSpec(image_size=224), seed=0
    )
    conv1, maxpool = encoder.backbone.conv1, encoder.backbone.maxpool
    assert isinstance(conv1, nn.Conv2d)
    assert (conv1.kernel_size, conv1.stride, conv1.padding) == ((3, 3), (1, 1), (1, 1))
    assert isinstance(maxpool, nn.Identity)
    assert encoder.config.stem == "small"


@pytest.mark.parametrize(
    ("name", "patch"), [("vit_tiny_patch16_224", (28, 28)), ("convnext_atto", (7, 7))]
)
def test_small_patches_are_a_share_of_a_large_image(name: str, patch: tuple[int, int]) -> None:
    encoder = EncoderSettings(name=name, stem="small").build(InputSpec(image_size=224), seed=0)
    first = next(m for m in encoder.backbone.modules() if isinstance(m, nn.Conv2d))
    assert first.kernel_size == patch
    assert encoder(torch.rand(1, 3, 224, 224)).shape == (1, encoder.dim)


@pytest.mark.parametrize("size", [32, 96])
@pytest.mark.parametrize("name", ["resnet-tiny", "mobilenetv3_small_050"])
def test_auto_is_what_the_encoder_gets_without_a_stem(name: str, size: int) -> None:
    built = EncoderSettings(name=name).build(InputSpec(image_size=size), seed=3)
    usual = build_encoder(name, image_size=size, seed=3)
    assert built.config == usual.config
    assert all(map(torch.equal, built.state_dict().values(), usual.state_dict().values()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "mobilenetv3_small_050", "stem": "small"}, "'mobilenetv3_small_050' has no smal"),
        ({"name": "resnet18", "stem": "tiny"}, "stem must be auto, cifar, small or native"),
        ({"name": "auto"}, "the encoder 'auto' depends on the device"),
        ({"name": 18}, "name must be a string, got 18"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        EncoderSettings(**settings).build(seed=0)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_a_function_that_builds_refuses_an_unknown_stem() -> None:
    with pytest.raises(ValueError, match="unknown stem 'smal': did you mean 'small'"):
        build_encoder("resnet-tiny", stem="smal", seed=0)  # type: ignore[arg-type]


def test_auto_becomes_what_the_device_can_train() -> None:
    settings = EncoderSettings(stem="native")
    assert settings.resolved(CPU) == EncoderSettings(name="dictionary-tiny", stem="native")
    assert settings.resolved(GPU) == EncoderSettings(name="resnet18", stem="native")
    assert EncoderSettings(name="resnet50").resolved(CPU).name == "resnet50"


def test_a_new_name_keeps_the_stem_and_whole_settings_replace_both() -> None:
    settings = EncoderSettings(name="resnet18", stem="small")
    assert settings.changed({"encoder": "resnet50"}).flat() == {
        "encoder": "resnet50",
        "stem": "small",
        "zero_init_last": True,
    }
    assert settings.changed({"encoder": EncoderSettings()}) == EncoderSettings()
    assert settings.changed({"stem": "native", "epochs": 3}) == dataclasses.replace(
        settings, stem="native"
    )
