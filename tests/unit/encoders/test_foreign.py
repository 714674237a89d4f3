"""Weights as other libraries write them, rebuilt here key by key."""

import pickle
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torchvision import models

from widefield.encoders import Encoder, VisionEncoder, cached_weights, load_foreign
from widefield.workflows.extractor import open_encoder


def settled(model: nn.Module) -> nn.Module:
    """With batch statistics that are not the initial ones, in evaluation mode."""
    model.train()
    with torch.no_grad():
        model(images())
    return model.eval()


def images(side: int = 64) -> Tensor:
    return torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(0))


def torchvision_resnet(small: bool = False) -> nn.Module:
    torch.manual_seed(0)
    model = models.resnet18(weights=None)
    if small:  # the CIFAR stem of solo-learn and lightly
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    return settled(model)


def features(model: nn.Module, x: Tensor) -> Tensor:
    model.fc = nn.Identity()
    with torch.no_grad():
        return model((x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1))


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


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("style", FORMATS)
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
    with torch.no_grad():
        torch.testing.assert_close(encoder(images()), features(model, images()))


def test_the_deeper_network_is_not_taken_for_its_shallow_half(tmp_path: Path) -> None:
    torch.save(models.resnet34(weights=None).state_dict(), tmp_path / "w.pth")
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
        x = extractor.encoder.normalise(images())
        expected = model.forward_head(model.forward_features(x), pre_logits=True)
        torch.testing.assert_close(extractor.encoder(images()), expected)
    assert "tensors found" in extractor.notes[0]


def test_a_vision_transformer_says_which_size_it_needs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    torch.save({"teacher": {"backbone": model.state_dict()}}, tmp_path / "w.pth")
    extractor = open_encoder(tmp_path / "w.pth")
    assert extractor.image_size == (224, 224)
    assert "below 'teacher.backbone.'" in extractor.notes[0]
    with torch.no_grad():
        x = extractor.encoder.normalise(images(224))
        torch.testing.assert_close(extractor.encoder(images(224)), model(x))


def test_what_is_missing_is_named_and_too_little_is_refused(tmp_path: Path) -> None:
    state = models.resnet18(weights=None).state_dict()
    torch.save({k: v for k, v in state.items() if k != "bn1.weight"}, tmp_path / "most.pth")
    _, match = load_foreign(tmp_path / "most.pth")
    assert match.random == ("bn1.weight",)
    assert "99 of 100 tensors found; random: bn1.weight" in match.line()
    torch.save({k: v for k, v in state.items() if "layer1" in k}, tmp_path / "some.pth")
    with pytest.raises(ValueError, match="finds 20 of its 100 tensors"):
        load_foreign(tmp_path / "some.pth", "resnet18")


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
    assert isinstance(extractor.build(x), VisionEncoder)
    url = models.ResNet18_Weights.DEFAULT.url
    file = tmp_path / "hub" / "checkpoints" / url.rsplit("/", 1)[1]
    file.parent.mkdir(parents=True)
    model = torchvision_resnet()
    torch.save(model.state_dict(), file)
    extractor = open_encoder("torchvision:resnet18")
    assert str(file) in extractor.notes[0]
    with torch.no_grad():
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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torchvision:resnet81", "did you mean 'torchvision:resnet18'"),
        ("torchvision:squeezenet1_0", "no linear layer"),
        ("timm:resnet81", "did you mean"),
    ],
)
def test_unknown_names_are_answered(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        open_encoder(name)


def test_torchvision_wants_three_channels() -> None:
    with pytest.raises(ValueError, match="takes 3 channels, the images have 1"):
        VisionEncoder("resnet18")(torch.rand(1, 1, 32, 32))
