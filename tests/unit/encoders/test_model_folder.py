import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch

from widefield.encoders import (
    Encoder,
    build_encoder,
    load_model_folder,
    register_with_timm,
    save_model_folder,
)
from widefield.inference.open_encoder import open_encoder

NATIVE = {"stem": "native", "image_size": 64}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet18", NATIVE),
        ("resnet-tiny", {**NATIVE, "channels": 1, "mean": (0.3,), "std": (0.2,)}),
        ("vit_tiny_patch16_224", {}),
        ("convnext_atto", {"channels": 4, "mean": (0.1, 0.2, 0.3, 0.4), "std": (0.2,) * 4}),
        ("mobilenetv3_small_050", {"image_size": (48, 64)}),
    ],
)
def test_timm_gives_the_same_features(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    encoder = build_encoder(name, seed=3, **settings)
    config = encoder.config
    x = torch.rand(8, config.channels, *config.image_size)
    encoder(x)  # batch statistics that are not the initial ones
    save_model_folder(encoder.eval(), tmp_path, card="# a card")
    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    data = timm.data.resolve_model_data_config(model)
    assert data["input_size"] == (config.channels, *config.image_size)
    mean, std = (torch.tensor(data[part]).view(1, -1, 1, 1) for part in ("mean", "std"))
    assert torch.allclose(model((x - mean) / std), encoder(x), atol=1e-5)
    untrained = timm.create_model(f"local-dir:{tmp_path}").eval()
    assert not torch.allclose(untrained((x - mean) / std), encoder(x), atol=1e-5)
    assert (tmp_path / "README.md").read_text() == "# a card"
    assert json.loads((tmp_path / "config.json").read_text())["num_features"] == encoder.dim


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("resnet-tiny", {}),
        ("resnet10t", {"channels": 1, "image_size": (24, 32), "zero_init_last": False}),
        ("alexnet", {}),
        ("vit_tiny_patch16_224,depth=1,norm_eps=1e-12", {}),
    ],
)
def test_what_timm_has_no_arguments_for_is_registered(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    encoder = build_encoder(name, seed=3, **settings)
    x = torch.rand(8, encoder.config.channels, *encoder.config.image_size)
    encoder(x)
    save_model_folder(encoder.eval(), tmp_path, card="")
    register_with_timm()
    register_with_timm()  # again does nothing
    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    data = timm.data.resolve_model_data_config(model)
    mean, std = (torch.tensor(data[part]).view(1, -1, 1, 1) for part in ("mean", "std"))
    torch.testing.assert_close(model((x - mean) / std), encoder(x), rtol=1e-4, atol=1e-6)
    reopened, match = load_model_folder(tmp_path)
    assert match.is_match
    assert reopened.config == encoder.config
    assert torch.equal(reopened(x), encoder(x))
    with pytest.raises(ValueError, match="no classifier: give num_classes=0"):
        timm.create_model(f"local-dir:{tmp_path}", num_classes=3)


@pytest.mark.parametrize(
    "more",
    ["num_heads=6", "global_pool=avg,patch_size=8", "embed_dim=48,num_heads=2", "act_layer=relu"],
)
def test_a_folder_keeps_the_arguments_of_a_transformer(more: str, tmp_path: Path) -> None:
    """Heads show in no tensor: other ones would give other features without a word."""
    encoder = build_encoder(f"vit_tiny_patch16_224,depth=1,{more}", stem="native", seed=3).eval()
    save_model_folder(encoder, tmp_path, card="")
    x = torch.rand(2, 3, 32, 32)
    for path in (tmp_path, tmp_path / "model.safetensors"):
        reopened = open_encoder(path)
        assert isinstance(reopened.encoder, Encoder)
        assert torch.equal(reopened.encoder(x), encoder(x))
        assert reopened.name == str(path)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("resnet10t", "global_pool", "max"),
        ("resnet10t", "output_stride", 8),
        ("resnet10t", "act_layer", "silu"),
        ("swin_tiny_patch4_window7_224", "always_partition", True),
        ("eva02_tiny_patch14_224", "rope_temperature", 100.0),
        ("mobilenetv3_small_050", "bn_eps", 1e-2),
        ("mobilenetv3_small_050", "pad_type", "same"),
        ("convnext_atto", "norm_eps", 1e-2),
        ("vit_tiny_patch16_224", "act_layer", "elu"),
        ("vit_tiny_patch16_224", "pool_include_prefix", True),
    ],
)
def test_what_shows_in_no_tensor_and_is_not_built_is_refused(
    name: str, key: str, value: object, tmp_path: Path
) -> None:
    model = timm.create_model(name, num_classes=0, **{key: value})
    timm.models.save_for_hf(model, tmp_path, {"model_args": {key: value}}, safe_serialization=True)
    with pytest.raises(ValueError, match=f"config.json has {key} {value!r}, which no encoder here"):
        load_model_folder(tmp_path)


@pytest.mark.parametrize("content", ['{"architecture": "a_resnet10t"}', "no JSON"])
def test_a_file_beside_a_configuration_of_nothing_known_opens_by_itself(
    content: str, tmp_path: Path
) -> None:
    encoder = build_encoder("resnet18", stem="native", image_size=64, seed=3)
    save_model_folder(encoder, tmp_path, card="")
    (tmp_path / "config.json").write_text(content)
    found = open_encoder(tmp_path / "model.safetensors").encoder
    assert isinstance(found, Encoder)
    assert found.config.name == "resnet18"


def test_a_folder_with_another_configuration_is_refused(tmp_path: Path) -> None:
    save_model_folder(build_encoder("resnet-tiny", seed=0), tmp_path, card="")
    config = json.loads((tmp_path / "config.json").read_text())
    config["model_args"]["encoder"]["timm"]["pretrained"] = True
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="has no encoder of this version"):
        load_model_folder(tmp_path)
