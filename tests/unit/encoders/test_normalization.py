"""Mean and deviation of weights of others: stated beside them, or guessed and reported."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torchvision import models

from tests.made_vits import hf_vit
from widefield.core.form import Form, InputSpec
from widefield.encoders import Encoder, build_encoder, load_foreign, load_module
from widefield.encoders.config import encoder_config
from widefield.encoders.vision import published_normalization
from widefield.encoders.weights.normalization import (
    NORMALIZATIONS,
    module_normalization,
    per_channel,
    recorded_normalization,
)
from widefield.inference.initial_weights import open_init
from widefield.inference.open_encoder import open_encoder

MEAN, STD = (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)
IMAGENET, HALF = NORMALIZATIONS["imagenet"], NORMALIZATIONS["half"]
STATED: dict[str, tuple[str, Any]] = {
    "timm": ("config.json", {"architecture": "x", "pretrained_cfg": {"mean": MEAN, "std": STD}}),
    "older timm": ("config.json", {"architecture": "x", "mean": MEAN, "std": STD}),
    "open_clip": ("open_clip_config.json", {"preprocess_cfg": {"mean": MEAN, "std": STD}}),
    "transformers": ("preprocessor_config.json", {"image_mean": MEAN, "image_std": STD}),
    "transformers without rescaling": (
        "preprocessor_config.json",
        {
            "do_rescale": False,
            "image_mean": [255 * x for x in MEAN],
            "image_std": [255 * x for x in STD],
        },
    ),
    "transformers from -1 to 1": (
        "preprocessor_config.json",
        {
            "rescale_factor": 1 / 127.5,
            "image_mean": [2 * x for x in MEAN],
            "image_std": [2 * x for x in STD],
        },
    ),
}


def close(found: tuple[Any, Any] | None, mean: Any, std: Any) -> bool:
    assert found is not None
    return found[0] == pytest.approx(tuple(mean)) and found[1] == pytest.approx(tuple(std))


@pytest.fixture(scope="module")
def vit() -> dict[str, Tensor]:
    torch.manual_seed(0)
    return dict(timm.create_model("vit_tiny_patch16_224", num_classes=0).state_dict())


@pytest.mark.parametrize("style", STATED)
def test_what_a_folder_states_is_taken(style: str, tmp_path: Path, vit: dict[str, Tensor]) -> None:
    name, content = STATED[style]
    weights = tmp_path / "model.safetensors"
    safetensors.torch.save_file(vit, weights)
    (tmp_path / name).write_text(json.dumps(content))
    assert close(recorded_normalization(tmp_path), MEAN, STD)
    encoder, match = load_foreign(weights, "vit_tiny_patch16_224")
    assert close((encoder.config.mean, encoder.config.std), MEAN, STD)
    assert not encoder.config.guessed
    assert "guessed" not in match.line()


def test_what_the_user_states_is_first_and_without_any_it_is_guessed(
    tmp_path: Path, vit: dict[str, Tensor]
) -> None:
    weights = tmp_path / "model.safetensors"
    safetensors.torch.save_file(vit, weights)
    guess = load_foreign(weights, "vit_tiny_patch16_224")[0].config
    assert (guess.mean, guess.std, guess.guessed) == (*IMAGENET, True)
    name, content = STATED["timm"]
    (tmp_path / name).write_text(json.dumps(content))
    chosen, _ = load_foreign(weights, "vit_tiny_patch16_224~half")
    assert (chosen.config.mean, chosen.config.guessed) == (HALF[0], False)


def test_images_that_transformers_does_not_normalize(tmp_path: Path) -> None:
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"do_normalize": False, "image_mean": MEAN, "image_std": STD}))
    assert close(recorded_normalization(tmp_path), (0,) * 3, (1,) * 3)


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        "[]",
        "{}",
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0, 1, 1]}),
        json.dumps({"image_mean": [0.5] * 3, "image_std": [float("nan")] * 3}),
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5]}),
        json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "rescale_factor": 0}),
        json.dumps({"image_mean": ["a"] * 3, "image_std": [0.5] * 3}),
    ],
)
def test_what_states_nothing_is_left_out(content: str, tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(content)
    assert recorded_normalization(tmp_path) is None
    (tmp_path / "model.safetensors").touch()
    assert recorded_normalization(tmp_path / "model.safetensors") is None


def test_the_configuration_of_a_neighbor_states_nothing(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(STATED["transformers"][1]))
    for name in ("mine.safetensors", "checkpoint.pth"):
        (tmp_path / name).touch()
        assert recorded_normalization(tmp_path / name) is None
    assert recorded_normalization(tmp_path) is not None


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{key}": value for key, value in tensors.items()}


def hugging_face(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return under("vit.", hf_vit(state)) | {"classifier.weight": torch.zeros(1000, 192)}


LAYOUTS: dict[str, tuple[Any, Any]] = {
    "DINO": (lambda v: {"teacher": under("backbone.", v), "student": {}}, IMAGENET),
    "DINO, backbone alone": (lambda v: v, IMAGENET),
    "iBOT": (
        lambda v: {"state_dict": under("backbone.", {**v, "masked_embed": torch.zeros(1, 192)})},
        IMAGENET,
    ),
    "MSN": (lambda v: {"target_encoder": under("module.", v)}, IMAGENET),
    "MAE": (lambda v: {"model": {**v, "mask_token": torch.zeros(1, 1, 512)}}, IMAGENET),
    "MoCo v3": (
        lambda v: {
            "state_dict": under("module.base_encoder.", v) | under("module.momentum_encoder.", v)
        },
        IMAGENET,
    ),
    "DeiT": (lambda v: {"model": {**v, "head.weight": torch.zeros(1000, 192)}}, IMAGENET),
    "lightly-train": (lambda v: {"student": under("backbone.", v)}, IMAGENET),
    "timm's classifier": (lambda v: {**v, "head.weight": torch.zeros(1000, 192)}, HALF),
    "transformers' classifier": (hugging_face, HALF),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_vit_is_normalized_by_the_layout_of_its_file(
    layout: str, tmp_path: Path, vit: dict[str, Tensor]
) -> None:
    """Timm's own mean and deviation of the architecture, 0.5, were taken for all: the control."""
    content, expected = LAYOUTS[layout]
    torch.save(content(vit), tmp_path / "w.pth")
    encoder, match = load_foreign(tmp_path / "w.pth", "vit_tiny_patch16_224")
    assert (encoder.config.mean, encoder.config.std) == expected
    assert encoder.config.guessed
    assert "(guessed; @NAME~NORMALIZATION chooses another)" in match.line()
    usual = timm.get_pretrained_cfg("vit_tiny_patch16_224")
    assert usual is not None
    assert (usual.mean, usual.std) == HALF


@pytest.mark.parametrize(
    ("classes", "small", "expected"),
    [(10, True, "cifar10"), (100, True, "cifar100"), (100, False, "imagenet")],
)
def test_solo_learns_files_by_their_classifier(
    classes: int, small: bool, expected: str, tmp_path: Path
) -> None:
    model = models.resnet18(weights=None)
    if small:
        model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=2, bias=False)
    state = {f"backbone.{k}": v for k, v in model.state_dict().items() if k[:2] != "fc"}
    state["classifier.weight"] = torch.zeros(classes, 512)
    torch.save({"state_dict": state}, tmp_path / "w.ckpt")
    config = load_foreign(tmp_path / "w.ckpt")[0].config
    assert (config.mean, config.std) == NORMALIZATIONS[expected]
    assert config.guessed


def test_published_weights_have_the_normalization_of_their_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert published_normalization("efficientnet_v2_l") == HALF  # not ImageNet's
    assert published_normalization("efficientnet_v2_s") == IMAGENET
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(timm.create_model("resnet10t").state_dict(), path)
    monkeypatch.setattr(
        "huggingface_hub.try_to_load_from_cache",
        lambda repository, name: str(path) if name == path.name else None,
    )
    named = open_encoder("timm:resnet10t")
    assert isinstance(named.encoder, Encoder)
    assert not named.encoder.config.guessed
    assert load_foreign(path, "resnet10t.c3_in1k")[0].config.guessed is False
    assert load_foreign(path, "resnet10t")[0].config.guessed is True


def test_an_exported_guess_is_said_and_what_is_trained_with_it_is_none(tmp_path: Path) -> None:
    from widefield.encoders import adapt_encoder
    from widefield.workflows.model_card import model_card

    config = encoder_config("resnet10t", InputSpec(guessed=True), stem="native")
    assert config.guessed
    encoder = build_encoder("resnet10t", stem="native", seed=0)
    encoder.config = config
    assert "(guessed: the weights did not state it)" in model_card(encoder, tmp_path)
    for size in (32, 64):
        assert not adapt_encoder(encoder, Form(channels=3, size=(size, size)))[0].config.guessed


def timm_vit() -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", num_classes=0, depth=12)


def timm_gray() -> nn.Module:
    return timm.create_model("resnet10t", num_classes=0, in_chans=1)


def torchvision_module() -> nn.Module:
    model = models.resnet18(weights=None)
    model.fc = nn.Identity()
    return model


def own_with_a_statement() -> nn.Module:
    model = torchvision_module()
    model.pretrained_cfg = {"mean": MEAN, "std": STD}
    return model


def normalized(x: Tensor, mean: Any, std: Any) -> Tensor:
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))
    return (x - mean) / std


MODULES: dict[Any, tuple[Any, Any, int, bool]] = {
    lambda: timm.create_model("resnet10t", num_classes=0): (*IMAGENET, 64, False),
    timm_vit: (*HALF, 224, False),
    torchvision_module: (*IMAGENET, 64, True),
    own_with_a_statement: (MEAN, STD, 64, False),
}


@pytest.mark.parametrize("make", MODULES, ids=["timm", "timm's ViT", "torchvision", "stated"])
def test_a_module_is_embedded_and_continued_with_the_same_normalization(make: Any) -> None:
    """Images in [0, 1] without normalization were embedded: the control."""
    mean, std, side, guessed = MODULES[make]
    torch.manual_seed(0)
    module = make().eval()
    x = torch.rand(3, 3, side, side)
    extractor = open_encoder(module)
    start = open_init(module, download=False).encoder.eval()
    assert extractor.encoder is not None
    with torch.no_grad():
        h = extractor.encoder.eval()(x)
        torch.testing.assert_close(h, module(normalized(x, mean, std)), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(h, start(x), rtol=1e-4, atol=1e-4)
        assert (h - module(x)).norm() > 0.05 * h.norm()
    assert start.config.guessed is guessed
    assert ("guessed" in extractor.notes[0]) is guessed
    assert f"mean {mean[0]:.4g}, " in extractor.notes[0]


def test_gray_modules_take_the_mean_of_the_channels() -> None:
    module = timm_gray().eval()
    (found, guessed) = module_normalization(module)
    assert close(found, [sum(IMAGENET[0]) / 3], [sum(IMAGENET[1]) / 3])
    assert not guessed
    assert open_encoder(module).encoder(torch.rand(2, 1, 32, 32)).shape == (2, 512)


def test_other_modules_get_images_as_they_are_and_this_is_said() -> None:
    module = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())
    extractor = open_encoder(module)
    assert extractor.encoder is module
    assert extractor.notes == (
        "Sequential: images in [0, 1] are not normalized (guessed: it has no pretrained_cfg)",
    )


def test_the_module_itself_does_not_change() -> None:
    module = torchvision_module()
    module.layer1.eval()  # a part of it is frozen
    flags = [part.training for part in module.modules()]
    names = list(module.state_dict())
    open_encoder(module).features(torch.zeros(2, 64, 64, 3, dtype=torch.uint8).numpy())
    assert [part.training for part in module.modules()] == flags
    assert list(module.state_dict()) == names
    assert load_module(module).config.name == "resnet18"


@pytest.mark.parametrize(
    ("name", "expected"), [("tf_efficientnet_lite0", HALF), ("efficientnet_lite0", IMAGENET)]
)
def test_networks_without_a_classifier_take_their_own(
    name: str, expected: Any, tmp_path: Path
) -> None:
    """Only of vision transformers do others publish weights of the same tensors."""
    tensors = timm.create_model(name, num_classes=0).state_dict()
    safetensors.torch.save_file(tensors, tmp_path / "weights.safetensors")
    config = load_foreign(tmp_path / "weights.safetensors", name)[0].config
    assert (config.mean, config.std) == expected


@torch.no_grad()
def test_torchvisions_networks_that_normalize_again(tmp_path: Path) -> None:
    """With weights, torchvision's GoogLeNet brings images by ImageNet's mean to [-1, 1]."""
    torch.manual_seed(0)
    network = models.googlenet(transform_input=True, init_weights=False).eval()
    torch.save(network.state_dict(), tmp_path / "googlenet.pth")
    encoder, _ = load_foreign(tmp_path / "googlenet.pth", "torchvision:googlenet")
    taken: list[Tensor] = []
    for each in (network, encoder.backbone):
        conv = each.get_submodule("conv1")
        conv.register_forward_pre_hook(lambda _, inputs: taken.append(inputs[0]))
    x = torch.rand(2, 3, 64, 64)
    mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in IMAGENET)
    network((x - mean) / std), encoder(x)
    torch.testing.assert_close(*taken)


@pytest.mark.parametrize("channels", [1, 5])
def test_other_channels_are_normalized_as_color_is_and_the_advice_works(
    channels: int, tmp_path: Path
) -> None:
    network = timm.create_model(
        "vit_tiny_patch16_224", depth=1, num_classes=0, in_chans=channels, img_size=32
    )
    safetensors.torch.save_file(network.state_dict(), tmp_path / "weights.safetensors")
    name = "vit_tiny_patch16_224,depth=1"
    encoder, match = load_foreign(tmp_path / "weights.safetensors", name)
    expected = [per_channel(values, channels) for values in IMAGENET]
    assert close((encoder.config.mean, encoder.config.std), *expected)
    assert "guessed; @NAME~NORMALIZATION chooses another" in match.line()
    chosen, _ = load_foreign(tmp_path / "weights.safetensors", f"{name}~none")
    assert (chosen.config.mean, chosen.config.guessed) == ((0.0,) * channels, False)
