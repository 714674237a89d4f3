import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import safetensors.torch
import timm
import torch

from widefield.encoders import (
    Encoder,
    build_encoder,
    cifar,
    export_onnx,
    load_encoder,
    save_encoder,
    timm_snippet,
)
from widefield.encoders.weights import files

CIFAR = ("alexnet", "wide-resnet-34-5")


def trained(name: str = "resnet-tiny", **settings: Any) -> Encoder:
    """An encoder with batch statistics that are not the initial ones, in evaluation mode."""
    encoder = build_encoder(name, seed=3, **settings)
    encoder(torch.rand(8, encoder.config.channels, *encoder.config.image_size))
    return encoder.eval()


def images(height: int = 32, width: int = 32) -> torch.Tensor:
    return torch.rand(5, 3, height, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in ("resnet-tiny", "vit_tiny_patch16_224", "convnext_atto")),
        ("resnet-tiny", {"stem": "small", "image_size": 96}),
        ("conv1d", {"image_size": (1, 64)}),
    ],
)
def test_a_loaded_encoder_is_the_saved_one_to_the_bit(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    encoder = trained(name, channels=1, mean=(0.3,), std=(0.1,), **settings)
    save_encoder(encoder.to(memory_format=torch.channels_last), tmp_path / "run")
    state = torch.get_rng_state()
    loaded = load_encoder(tmp_path / "run").eval()
    assert torch.equal(torch.get_rng_state(), state)
    assert loaded.config == encoder.config
    assert loaded.state_dict().keys() == encoder.state_dict().keys()
    assert all(map(torch.equal, loaded.state_dict().values(), encoder.state_dict().values()))
    loaded = loaded.to(memory_format=torch.channels_last)
    x = torch.rand(5, 1, *encoder.config.image_size)
    assert torch.equal(loaded(x), encoder(x))
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "encoder.json",
        "encoder.safetensors",
    ]


def test_loading_does_not_import_the_compiler(tmp_path: Path) -> None:
    """It takes two seconds, and only draws and arithmetic on the device meta would need it."""
    save_encoder(build_encoder("dictionary-tiny", seed=0), tmp_path)
    code = "import sys; from widefield.encoders import load_encoder; load_encoder(sys.argv[1]); "
    code += "assert not {'torch._dynamo', 'sympy'} & {*sys.modules}"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_the_weights_file_is_enough(tmp_path: Path) -> None:
    encoder = trained()
    save_encoder(encoder, tmp_path)
    (tmp_path / "encoder.json").unlink()
    loaded = load_encoder(tmp_path / "encoder.safetensors").eval()
    assert torch.equal(loaded(images()), encoder(images()))


@pytest.mark.parametrize("name", ["resnet-tiny", "vit_tiny_patch16_224", "mobilenetv3_small_050"])
def test_plain_timm_loads_it_with_the_lines_we_print(name: str, in_tmp: Path) -> None:
    encoder = trained(name, mean=(0.1, 0.5, 0.7), std=(0.2, 0.25, 0.5))
    save_encoder(encoder, in_tmp)
    lines = timm_snippet(encoder.config)
    assert "widefield" not in lines
    assert len([line for line in lines.splitlines() if line.startswith("model")]) <= 3
    names: dict[str, Any] = {}
    exec(lines, names)
    x = encoder.normalize(images())
    assert torch.equal(names["model"](x), encoder(images()))


def test_the_snippet_names_another_file(in_tmp: Path) -> None:
    encoder = trained()
    save_encoder(encoder, in_tmp)
    (in_tmp / "encoder.json").rename("photos.json")
    (in_tmp / "encoder.safetensors").rename("photos.safetensors")
    names: dict[str, Any] = {}
    exec(timm_snippet(encoder.config, "photos"), names)
    assert torch.equal(names["model"](encoder.normalize(images())), encoder(images()))


def test_the_weights_have_timms_own_keys(tmp_path: Path) -> None:
    save_encoder(build_encoder("resnet18", seed=0), tmp_path)
    keys = safetensors.torch.load_file(tmp_path / "encoder.safetensors").keys()
    assert keys == timm.create_model("resnet18", num_classes=0).state_dict().keys()


def test_an_interrupted_save_leaves_the_old_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = trained()
    save_encoder(old, tmp_path)

    def interrupted(weights: object, draft: Path, metadata: object) -> None:
        draft.write_bytes(b"half a file")
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_encoder(build_encoder("resnet-tiny", seed=9), tmp_path)
    assert torch.equal(load_encoder(tmp_path).eval()(images()), old(images()))


def damaged(file: Path, how: str) -> Path:
    """`file` after an accident, or a file that was never ours."""
    whole = file.read_bytes()
    weights = safetensors.torch.load(whole)
    if how == "missing":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "truncated header":
        file.write_bytes(whole[:100])
    elif how == "truncated weights":
        file.write_bytes(whole[:-10])
    elif how == "a checkpoint of torch":
        torch.save(weights, file)
    else:
        safetensors.torch.save_file(weights, file)
    return file


@pytest.mark.parametrize(
    "how",
    [
        "missing",
        "empty",
        "truncated header",
        "truncated weights",
        "a checkpoint of torch",
        "somebody else's weights",
    ],
)
def test_a_damaged_or_foreign_file_is_refused_in_one_line(how: str, tmp_path: Path) -> None:
    save_encoder(trained(), tmp_path)
    file = damaged(tmp_path / "encoder.safetensors", how)
    with pytest.raises(ValueError, match=r"encoder\.safetensors") as refused:
        load_encoder(file)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "height", "width"),
    [
        ("resnet-tiny", 16, 40),
        *((name, 32, 32) for name in ("test_vit", *CIFAR)),
    ],
)
def test_onnx_computes_the_same_for_any_batch(
    name: str, height: int, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wide residual network has one block in each group: others would be exported alike."""
    monkeypatch.setattr(cifar, "_group", cifar.WideBlock)
    statistics = {"mean": (0.1, 0.5, 0.7), "std": (0.2, 0.25, 0.5)}
    encoder = trained(name, image_size=(height, width), **statistics).train()
    export_onnx(encoder, tmp_path / "encoder.onnx")
    assert encoder.training, "the encoder itself is left as it was"
    assert [p.name for p in tmp_path.iterdir()] == ["encoder.onnx"]
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx")
    assert session.get_inputs()[0].shape[1:] == [3, height, width]
    encoder.eval()
    rtol = 1e-4 if name in CIFAR else 0  # of features without normalization
    for x in (images(height, width), images(height, width)[:1]):
        (features,) = session.run(["features"], {"images": x.numpy()})
        torch.testing.assert_close(torch.from_numpy(features), encoder(x), atol=1e-4, rtol=rtol)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_onnx_without_its_packages_says_what_to_install(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == package else find(name)
    )
    with pytest.raises(ValueError, match=r"pip install 'widefield\[onnx\]'"):
        export_onnx(trained(), tmp_path / "encoder.onnx")
    assert not (tmp_path / "encoder.onnx").exists()
