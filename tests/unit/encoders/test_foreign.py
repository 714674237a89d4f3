"""Weights as other libraries write them, rebuilt here key by key."""

import argparse
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torchvision import models

from axes import each_value
from widefield.encoders import Encoder, cached_weights, load_encoder, load_foreign, save_encoder
from widefield.encoders.weights.normalization import NORMALIZATIONS
from widefield.inference.open_encoder import open_encoder


def settled(model: nn.Module) -> nn.Module:
    """With batch statistics that are not the initial ones, in evaluation mode."""
    model.train()
    with torch.no_grad():
        model(images())
    return model.eval()


def images(side: int = 32) -> Tensor:
    return torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(0))


def torchvision_resnet(small: bool = False) -> nn.Module:
    torch.manual_seed(0)
    model = models.resnet18(weights=None)
    if small:  # the CIFAR stem of solo-learn and lightly
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return settled(model)


def features(model: nn.Module, x: Tensor, normalization: str = "imagenet") -> Tensor:
    model.fc = nn.Identity()
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in NORMALIZATIONS[normalization])
    with torch.no_grad():
        return model((x - mean) / std)


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

FORMATS = {
    "torchvision": lambda m: m.state_dict(),
    "lightning": lambda m: {
        "state_dict": {f"model.encoder.{k}": v for k, v in m.state_dict().items()},
        "epoch": 3,
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(64, 3, 7, 7)}}}],
    },
    "solo-learn": lambda m: {
        "state_dict": {
            **{f"backbone.{k}": v for k, v in m.state_dict().items() if not k.startswith("fc")},
            **{f"momentum_backbone.{k}": 0 * v for k, v in m.state_dict().items()},
            "projector.0.weight": torch.zeros(2048, 512),
        }
    },
    "lightly": lambda m: {
        f"backbone.{k}": v for k, v in nn.Sequential(*list(m.children())[:-1]).state_dict().items()
    },
    "data-parallel": lambda m: {
        "model": {f"module.{k}": v for k, v in m.state_dict().items()},
        "arch": "resnet18",
    },
}


@each_value(("small", [False, True]), ("style", FORMATS))
def test_features_are_those_of_the_network_that_was_saved(
    style: str, small: bool, tmp_path: Path
) -> None:
    model = torchvision_resnet(small)
    torch.save(FORMATS[style](model), tmp_path / "w.ckpt")
    encoder, match = load_foreign(tmp_path / "w.ckpt")
    assert match.architecture == "resnet18"
    assert isinstance(encoder, Encoder)
    assert encoder.config.stem == ("small" if small else "native")
    assert match.random == ()
    assert "100 of 100 tensors found" in match.line()
    torch.testing.assert_close(encoder(images()), features(model, images()))


def test_the_deeper_network_is_not_taken_for_its_shallow_half(tmp_path: Path) -> None:
    with torch.device("meta"):
        state = models.resnet34(weights=None).state_dict()
    torch.save(
        {k: torch.ones(v.shape, dtype=v.dtype) for k, v in state.items()}, tmp_path / "w.pth"
    )
    assert load_foreign(tmp_path / "w.pth")[1].architecture == "resnet34"


def test_timm_safetensors_and_a_named_architecture(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = settled(timm.create_model("mobilenetv3_small_050", num_classes=7))
    path = tmp_path / "w.safetensors"
    safetensors.torch.save_file(model.state_dict(), path)
    with pytest.raises(ValueError, match=r"finds 10 of its 264 tensors there.*; append @NAME"):
        open_encoder(path)
    extractor = open_encoder(f"{path}@mobilenetv3_small_050")
    assert isinstance(extractor.encoder, Encoder)
    with torch.no_grad():
        x = extractor.encoder.normalize(images())
        expected = model.forward_head(model.forward_features(x), pre_logits=True)
        torch.testing.assert_close(extractor.encoder(images()), expected)
    assert "tensors found" in extractor.notes[0]


def test_a_vision_transformer_says_which_size_it_needs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    torch.save({"teacher": {"backbone": model.state_dict()}}, tmp_path / "w.pth")
    extractor = open_encoder(tmp_path / "w.pth")
    assert extractor.form.size == (224, 224)
    assert "below 'teacher.backbone.'" in extractor.notes[0]
    with torch.no_grad():
        x = extractor.encoder.normalize(images(224))
        torch.testing.assert_close(extractor.encoder(images(224)), model(x))


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("owned"),))


def test_files_that_hold_code_are_never_run(in_tmp: Path) -> None:
    torch.save({"state_dict": Evil()}, "evil.pth")
    (in_tmp / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    (in_tmp / "short.pth").write_bytes((in_tmp / "evil.pth").read_bytes()[:40])
    (in_tmp / "empty.safetensors").write_bytes(b"")
    for name in ("evil.pth", "evil.pkl", "short.pth", "empty.safetensors"):
        with pytest.raises(ValueError, match=rf"{name} cannot be read as plain weights") as refused:
            open_encoder(name)
        assert "\n" not in str(refused.value)
    assert not (in_tmp / "owned").exists()
    torch.save({"epoch": 3}, "none.pth")
    with pytest.raises(ValueError, match="holds no tensors"):
        load_foreign("none.pth")
    with pytest.raises(ValueError, match="no weights at nowhere"):
        load_foreign("nowhere")


def test_torchvision_by_name_takes_cached_weights_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    x = (255 * images(32)).permute(0, 2, 3, 1).to(torch.uint8).numpy()
    extractor = open_encoder("torchvision:resnet18")
    assert "random weights" in extractor.notes[0]
    assert extractor.features(x).shape == (4, 512)
    assert isinstance(extractor.build(x), Encoder)
    url = models.ResNet18_Weights.DEFAULT.url
    file = tmp_path / "hub" / "checkpoints" / url.rsplit("/", 1)[1]
    file.parent.mkdir(parents=True)
    model = torchvision_resnet()
    torch.save(model.state_dict(), file)
    extractor = open_encoder("torchvision:resnet18")
    assert str(file) in extractor.notes[0]
    torch.testing.assert_close(extractor.encoder(images()), features(model, images()))


def test_timm_by_name_takes_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = timm.create_model("resnet10t")
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file(model.state_dict(), file)
    asked = []

    def look(repository: str, name: str) -> str | None:
        asked.append(repository)
        return str(file) if name == "model.safetensors" else None

    assert "random weights" in open_encoder("timm:resnet10t").notes[0]
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", look)
    assert cached_weights("timm:resnet10t") == file
    assert "tensors found" in open_encoder("timm:resnet10t").notes[0]
    assert asked[0].startswith("timm/resnet10t")


def test_timm_by_name_with_arguments_has_the_weights_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = timm.create_model("vit_tiny_patch16_224", global_pool="avg").eval()
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file(model.state_dict(), file)
    name = "timm:vit_tiny_patch16_224,global_pool=avg"
    assert "random weights" in open_encoder(name).notes[0]
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(file))
    extractor = open_encoder(name)
    assert str(file) in extractor.notes[0]
    x = torch.rand(2, 3, 224, 224)
    torch.testing.assert_close(
        extractor.encoder(x), model.forward_head(model.forward_features(2 * x - 1), True)
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torchvision:resnet81", "did you mean 'torchvision:resnet18'"),
        ("torchvision:squeezenet1_0", "no linear layer"),
        ("timm:resnet81", "did you mean"),
        ("timm:dinosaur", r"unknown encoder 'dinosaur': timm.list_models\(\) lists them"),
        ("torchvision:dinosaur", r"torchvision.models.list_models\(\) lists them"),
    ],
)
def test_unknown_names_are_answered(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_encoder(name)


def test_solo_learns_small_first_layer_is_padded_by_two(tmp_path: Path) -> None:
    """Another padding, the old behavior, gives other features: the control."""
    torch.manual_seed(0)
    model = models.resnet18(weights=None)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=2, bias=False)
    model.maxpool = nn.Identity()
    model = settled(model)
    state = {f"backbone.{k}": v for k, v in model.state_dict().items() if not k.startswith("fc")}
    named, plain = tmp_path / "solo.ckpt", tmp_path / "plain.ckpt"
    torch.save({"state_dict": {**state, "classifier.weight": torch.zeros(10, 512)}}, named)
    torch.save({"state_dict": state}, plain)
    expected = features(model, images(), "cifar10")
    for file, choice in ((named, None), (plain, "solo-learn:resnet18")):
        encoder, match = load_foreign(file, choice)
        assert "first layer 3x3, padded by 2, no max-pool" in match.line()
        torch.testing.assert_close(encoder(images()), expected)
    for file, choice in ((named, "resnet18"), (plain, None)):
        encoder, match = load_foreign(file, choice)
        assert "padded by 1" in match.line()
        assert not torch.allclose(encoder(images()), expected, rtol=1e-3)


def test_an_encoder_padded_by_two_can_be_written_and_read_again(tmp_path: Path) -> None:
    torch.save(torchvision_resnet(small=True).state_dict(), tmp_path / "w.pth")
    encoder, _ = load_foreign(tmp_path / "w.pth", "solo-learn:resnet18")
    assert isinstance(encoder, Encoder)
    save_encoder(encoder, tmp_path)
    torch.testing.assert_close(load_encoder(tmp_path).eval()(images()), encoder(images()))


def test_the_normalization_can_be_chosen_and_is_said(tmp_path: Path) -> None:
    torch.save(torchvision_resnet().state_dict(), tmp_path / "w.pth")
    usual, match = load_foreign(tmp_path / "w.pth", "resnet18")
    assert (
        "normalized by mean 0.485, 0.456, 0.406 and deviation 0.229, 0.224, 0.225" in match.line()
    )
    other, match = load_foreign(tmp_path / "w.pth", "resnet18~half")
    assert "normalized by mean 0.5, 0.5, 0.5 and deviation 0.5, 0.5, 0.5" in match.line()
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    with torch.no_grad():
        shown = ((images() - 0.5) / 0.5) * std + mean  # what `usual` normalizes in the same way
        torch.testing.assert_close(other(images()), usual(shown))
        assert not torch.allclose(other(images()), usual(images()), rtol=1e-3)
    with pytest.raises(ValueError, match="unknown normalization 'imagenot': did you mean"):
        load_foreign(tmp_path / "w.pth", "resnet18~imagenot")


def test_the_normalization_of_torchvisions_networks_can_be_chosen_too(tmp_path: Path) -> None:
    torch.save(models.mobilenet_v2(weights=None).state_dict(), tmp_path / "v.pth")
    _, usual = load_foreign(tmp_path / "v.pth", "torchvision:mobilenet_v2")
    encoder, other = load_foreign(tmp_path / "v.pth", "torchvision:mobilenet_v2~half")
    assert "mean 0.485, 0.456, 0.406" in usual.line()
    assert "mean 0.5, 0.5, 0.5 and deviation 0.5, 0.5, 0.5" in other.line()
    assert (encoder.config.mean, encoder.config.std) == ((0.5,) * 3, (0.5,) * 3)


def hugging_face_resnet(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Spell torchvision's names of a ResNet as transformers' ResNetModel does."""
    theirs = {}
    for name, value in state.items():
        parts = name.split(".")
        if parts[0] in ("conv1", "bn1"):
            kind = "convolution" if parts[0] == "conv1" else "normalization"
            theirs[f"resnet.embedder.embedder.{kind}.{parts[-1]}"] = value
        elif parts[0].startswith("layer"):
            front = f"resnet.encoder.stages.{int(parts[0][5:]) - 1}.layers.{parts[1]}"
            if parts[2] == "downsample":
                kind = ("convolution", "normalization")[int(parts[3])]
                theirs[f"{front}.shortcut.{kind}.{parts[-1]}"] = value
            else:
                kind = "convolution" if parts[2].startswith("conv") else "normalization"
                theirs[f"{front}.layer.{int(parts[2][-1]) - 1}.{kind}.{parts[-1]}"] = value
    return theirs


def test_names_of_hugging_faces_resnet(tmp_path: Path) -> None:
    model = torchvision_resnet()
    torch.save(hugging_face_resnet(model.state_dict()), tmp_path / "pytorch_model.bin")
    encoder, match = load_foreign(tmp_path / "pytorch_model.bin")
    assert (match.architecture, match.random) == ("resnet18", ())
    torch.testing.assert_close(encoder(images()), features(model, images()))


def open_clip(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Spell timm's names of a CLIP's images' half as open_clip does, beside a half for words."""
    spelled = (
        *(("blocks.", "transformer.resblocks."), ("norm_pre", "ln_pre"), ("norm1", "ln_1")),
        *(("norm2", "ln_2"), ("attn.qkv.", "attn.in_proj_"), ("attn.proj", "attn.out_proj")),
        *(("mlp.fc1", "mlp.c_fc"), ("mlp.fc2", "mlp.c_proj"), ("patch_embed.proj", "conv1")),
        *(("cls_token", "class_embedding"), ("pos_embed", "positional_embedding")),
    )
    theirs = {}
    for name, value in state.items():
        for ours, other in spelled:
            name = name.replace(ours, other)
        name = f"ln_post.{name[5:]}" if name.startswith("norm.") else name
        theirs[f"visual.{name}"] = value.squeeze() if name.endswith("_embedding") else value
    words = {f"transformer.resblocks.{i}.ln_1.weight": torch.zeros(64) for i in range(12)}
    words |= {"positional_embedding": torch.zeros(77, 64), "logit_scale": torch.zeros(())}
    return theirs | words | {"visual.proj": torch.zeros(256, 512)}


def hugging_face_clip(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Spell timm's names of a CLIP's images' half as transformers' CLIPModel does."""
    spelled = (
        *(("blocks.", "encoder.layers."), ("norm_pre", "pre_layrnorm"), ("norm1", "layer_norm1")),
        *(("norm2", "layer_norm2"), ("attn.qkv.", "attn.qkv "), ("attn.", "self_attn.")),
        *(("self_attn.proj", "self_attn.out_proj"), ("cls_token", "embeddings.class_embedding")),
        *(("patch_embed.proj", "embeddings.patch_embedding"),),
        *(("pos_embed", "embeddings.position_embedding.weight"),),
    )
    theirs = {"text_model.final_layer_norm.weight": torch.zeros(512)}
    for name, value in state.items():
        for ours, other in spelled:
            name = name.replace(ours, other)
        name = f"post_layernorm.{name[5:]}" if name.startswith("norm.") else name
        front, middle, end = f"vision_model.{name}".partition("qkv ")
        for part, third in zip("qkv", value.chunk(3), strict=True) if middle else ():
            theirs[f"{front}{part}_proj.{end}"] = third.clone()
        if not middle:
            theirs[front] = value.squeeze() if "embeddings.patch" not in front else value
    return theirs


@pytest.fixture(scope="module")
def clip() -> nn.Module:
    with torch.device("meta"):
        model = timm.create_model("vit_base_patch16_clip_224", num_classes=0)
    model.to_empty(device="cpu")
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.uniform_(-0.04, 0.04).add_("norm" in name and name.endswith("weight"))
        model.norm_pre.weight.uniform_(0.1, 2)
        model.norm_pre.bias.uniform_(-1, 1)
    return model.eval()


@pytest.mark.parametrize("spell", [open_clip, hugging_face_clip])
def test_a_clip_is_told_from_a_plain_vision_transformer(
    spell: Callable[[dict[str, Tensor]], dict[str, Tensor]], clip: nn.Module, tmp_path: Path
) -> None:
    """It has one layer more, other means, and no bias of its patches: all features would change."""
    safetensors.torch.save_file(spell(dict(clip.state_dict())), tmp_path / "w.safetensors")
    encoder, match = load_foreign(tmp_path / "w.safetensors")
    assert match.architecture == "vit_base_patch16_clip_224"
    assert f"below '{'visual.' if spell is open_clip else 'vision_model.'}'" in match.line()
    assert match.random == match.unused == ()
    assert "mean 0.4815" in match.line()
    with torch.no_grad():
        assert isinstance(encoder, Encoder)
        x = images(224)[:1]
        torch.testing.assert_close(encoder(x), clip(encoder.normalize(x)))


@pytest.mark.parametrize(
    ("spell", "name", "config"),
    [
        (hugging_face_clip, "config.json", {"vision_config": {"hidden_act": "quick_gelu"}}),
        (hugging_face_clip, "config.json", {"model_type": "clip"}),  # its default
        (open_clip, "open_clip_config.json", {"model_cfg": {"quick_gelu": True}}),
    ],
)
def test_a_clip_with_quick_gelu_by_its_configuration(
    spell: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    name: str,
    config: dict[str, Any],
    clip: nn.Module,
    tmp_path: Path,
) -> None:
    """No tensor shows it, and features with the other activation are another network's."""
    file, arch = tmp_path / "pytorch_model.bin", "vit_base_patch16_clip_quickgelu_224"
    torch.save(spell(dict(clip.state_dict())), file)
    assert "weights of OpenAI need a name with quickgelu" in load_foreign(file)[1].line()
    (tmp_path / name).write_text(json.dumps(config))
    for other in (None, "vit_base_patch16_clip_224"):
        with pytest.raises(ValueError, match=f"has the activation quick_gelu.* append @{arch} to"):
            load_foreign(file, other)
    assert "GELU" not in load_foreign(file, arch)[1].line()


def test_another_clip_is_no_plain_vision_transformer(tmp_path: Path) -> None:
    """It would fit one but for the layer before its blocks."""
    torch.manual_seed(0)
    state = timm.create_model("vit_small_patch16_224", num_classes=0).state_dict()
    state |= {"norm_pre.weight": torch.ones(384), "norm_pre.bias": torch.zeros(384)}
    safetensors.torch.save_file(open_clip(state), tmp_path / "w.safetensors")
    with pytest.raises(
        ValueError, match=r"150 of its 150 tensors there and has no place for norm_"
    ):
        load_foreign(tmp_path / "w.safetensors")
    with pytest.raises(
        ValueError, match=r"has no place for norm_pre.bias, norm_pre.weight; .*leave @NAME out"
    ):
        load_foreign(tmp_path / "w.safetensors", "vit_small_patch16_224")


def test_hyper_parameters_of_other_classes_are_left_out_and_nothing_runs(in_tmp: Path) -> None:
    model = torchvision_resnet()
    content = {
        "hyper_parameters": {"config": argparse.Namespace(lr=0.1), "path": Path("x"), "e": Evil()},
        "state_dict": {f"backbone.{k}": v for k, v in model.state_dict().items()},
    }
    torch.save(content, "w.ckpt")
    with pytest.raises(pickle.UnpicklingError):  # the old behavior, the control
        torch.load("w.ckpt", weights_only=True)
    encoder, match = load_foreign("w.ckpt")
    assert match.random == ()
    assert not (in_tmp / "owned").exists()
    torch.testing.assert_close(encoder(images()), features(model, images()))
    torch.save({"model": argparse.Namespace(weights=torch.zeros(3))}, "other.ckpt")
    with pytest.raises(
        ValueError, match=r"beside objects of argparse\.Namespace it has no tensors"
    ):
        load_foreign("other.ckpt")


def test_a_size_that_only_timms_own_weights_have(tmp_path: Path) -> None:
    """DINOv2 has places for images of 518 pixels; those of 224 would leave a layer at random."""
    with torch.device("meta"):
        model = timm.create_model("vit_small_patch14_dinov2", num_classes=0)
    state = {key: torch.ones(value.shape) for key, value in model.state_dict().items()}
    torch.save(state, tmp_path / "w.pth")
    encoder, match = load_foreign(tmp_path / "w.pth", "vit_small_patch14_dinov2")
    assert match.random == ()
    assert isinstance(encoder, Encoder)
    assert encoder.config.image_size == (518, 518)
