"""Files of weights that are damaged, of another network, or that ask for something."""

import json
import shutil
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from widefield.encoders import build_encoder, load_encoder, load_foreign, save_encoder
from widefield.methods import load_projector, save_projector
from widefield.methods.projector import Projector

CONFIG = "widefield"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    save_encoder(build_encoder("resnet-tiny", seed=0), folder)
    save_projector(Projector(8, layers=2, width=4, out_dim=3, batch_norm=True), folder)
    return folder


def rewritten(
    file: Path,
    target: Path,
    change: Callable[[dict[str, Any]], object] = lambda settings: None,
    weights: Callable[[dict[str, Tensor]], object] = lambda tensors: None,
) -> Path:
    """Write a copy of a file of ours with other settings in its header, or other tensors."""
    with safe_open(file, framework="pt") as opened:
        (key,) = opened.metadata()
        header = json.loads(opened.metadata()[key])
    tensors = safetensors.torch.load_file(file)
    header = change(header) or header
    weights(tensors)
    target.mkdir(parents=True, exist_ok=True)
    metadata = {key: json.dumps(header)}
    safetensors.torch.save_file(tensors, target / file.name, metadata=metadata)
    return target


FETCHING = [
    {"pretrained": True},
    {"pretrained_cfg": {"url": "http://127.0.0.1:9/x.pth"}},
    {"pretrained_cfg_overlay": {"hf_hub_id": "a/b"}},
    {"checkpoint_path": "/etc/passwd"},
    {"cache_dir": "elsewhere"},
    {"model_name": "hf-hub:timm/resnet18"},
    {"model_name": "local-dir:/tmp"},
    {"model_name": "resnet50"},
    {"scriptable": True},
    {"layers": [10**6]},
    {"num_classes": 10**9},
    {"features_only": True},
]


@pytest.mark.parametrize("arguments", FETCHING, ids=str)
def test_a_header_chooses_no_argument_of_timm(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(timm, "create_model", lambda **given: pytest.fail(f"called: {given}"))
    folder = rewritten(
        saved / "encoder.safetensors",
        tmp_path,
        lambda header: header["timm"].update(arguments),  # type: ignore[func-returns-value]
    )
    # `choose_stem` asks timm for the width of the stem, by arguments of our own.
    monkeypatch.setattr(
        "widefield.encoders.config._small_conv", lambda given: json_of(saved)["conv1"]
    )
    with pytest.raises(ValueError, match="arguments for timm are not those of resnet-tiny"):
        load_encoder(folder)


def json_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "encoder.json").read_text())


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    "change",
    [
        {"mean": [NAN, 0.5, 0.5]},
        {"std": [0.0, 0.25, 0.25]},
        {"std": [NAN, 0.25, 0.25]},
        {"std": [1e-300, 0.25, 0.25]},
        {"mean": [1e300, 0.5, 0.5]},
        {"mean": [0.5]},
        {"mean": 0.5},
        {"mean": None},
        {"mean": [True, 0.5, 0.5]},
        {"channels": 10**9},
        {"channels": "3"},
        {"channels": -3},
        {"image_size": 10**30},
        {"image_size": 0},
        {"image_size": [[1]]},
        {"name": "hf-hub:timm/resnet18"},
        {"name": ["resnet18"]},
        {"stem": "any"},
        {"timm": None},
        {"timm": []},
        {"conv1": None},
        {"conv1": {"in_channels": 3}},
        {"code": "print()"},
    ],
    ids=str,
)
def test_a_header_that_is_not_ours(saved: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    folder = rewritten(saved / "encoder.safetensors", tmp_path, lambda header: header | change)
    with pytest.raises(ValueError, match="holds no encoder of this version") as error:
        load_encoder(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("header", ["[]", "3", "null", "{", '"x"', "[" * 100000])
def test_a_header_that_is_no_settings(saved: Path, tmp_path: Path, header: str) -> None:
    tensors = safetensors.torch.load_file(saved / "encoder.safetensors")
    file = tmp_path / "encoder.safetensors"
    safetensors.torch.save_file(tensors, file, metadata={CONFIG: header})
    with pytest.raises(ValueError, match=r"holds no encoder of this version|nested"):
        load_encoder(tmp_path)


def spoil(value: float) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors["layer1.0.conv1.weight"][0, 0, 0, 0] = value

    return change


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (spoil(NAN), "NaN or infinity"),
        (spoil(INFINITY), "NaN or infinity"),
        (lambda tensors: tensors.pop("conv1.weight"), "'conv1.weight' is missing"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "'extra' is unknown"),
        (lambda tensors: tensors.update({"conv1.weight": torch.zeros(1)}), "has shape"),
    ],
)
def test_weights_that_are_not_the_encoders(
    saved: Path, tmp_path: Path, weights: Callable[[dict[str, Tensor]], object], words: str
) -> None:
    rewritten(saved / "encoder.safetensors", tmp_path, weights=weights)
    with pytest.raises(ValueError, match=words):
        load_encoder(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"layers": 10**9},
        {"width": 10**6, "layers": 100},
        {"layers": "2"},
        {"batch_norm": 1},
        {"in_dim": 0},
        {"code": 1},
    ],
    ids=str,
)
def test_a_projector_that_is_not_ours(saved: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    folder = rewritten(saved / "projector.safetensors", tmp_path, lambda header: header | change)
    with pytest.raises(ValueError, match="cannot be read"):
        load_projector(folder)
    assert load_projector(saved) is not None  # the control


@settings(max_examples=25, deadline=None)
@given(start=st.integers(0, 3000), noise=st.binary(min_size=1, max_size=40))
def test_a_damaged_header_gets_one_line(
    saved: Path, tmp_path_factory: pytest.TempPathFactory, start: int, noise: bytes
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    content = bytearray((saved / "encoder.safetensors").read_bytes())
    content[start : start + len(noise)] = noise
    (folder / "encoder.safetensors").write_bytes(content)
    for load in (load_encoder, partial(load_foreign, architecture="resnet-tiny")):
        try:
            load(folder / "encoder.safetensors")
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017


@cache
def weights() -> dict[str, Tensor]:
    return dict(build_encoder("resnet-tiny", seed=0).backbone.state_dict())


def resnet(**changes: Tensor) -> dict[str, Tensor]:
    return weights() | changes


def without(name: str) -> dict[str, Tensor]:
    return {key: value for key, value in resnet().items() if key != name}


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (without("conv1.weight"), "lacks conv1.weight"),
        (resnet(**{"conv1.weight": torch.zeros(16, 3, 5, 5)}), "in another shape: conv1.weight"),
        (
            resnet(**{"layer4.0.conv2.weight": torch.zeros(128, 128, 1, 1)}),
            "in another shape: layer4.0.conv2.weight",
        ),
        (
            resnet(**{f"layer4.{i}.conv1.weight": torch.zeros(9) for i in range(2, 40)}),
            "has no place for layer4.2.conv1.weight, layer4.3",
        ),
        (resnet(**{"bn1.weight": torch.full((16,), NAN)}), "NaN or infinity"),
    ],
)
def test_weights_that_would_leave_a_layer_at_random(
    tmp_path: Path, tensors: dict[str, Tensor], words: str
) -> None:
    torch.save(tensors, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=words):
        load_foreign(tmp_path / "w.pth", "resnet-tiny")
    torch.save(resnet(), tmp_path / "w.pth")  # the control
    assert load_foreign(tmp_path / "w.pth", "resnet-tiny")[1].share == 1


def test_a_teacher_stands_before_its_student_and_both_are_named(tmp_path: Path) -> None:
    student, teacher = resnet(), {key: value + 1 for key, value in resnet().items()}
    content = {
        "student": {f"module.backbone.{key}": value for key, value in student.items()},
        "teacher": {f"backbone.{key}": value for key, value in teacher.items()},
    }
    torch.save(content, tmp_path / "dino.pth")
    encoder, match = load_foreign(tmp_path / "dino.pth")
    assert torch.equal(encoder.backbone.state_dict()["bn1.bias"], teacher["bn1.bias"])
    assert "below 'teacher.backbone.'; not those below 'student.module.backbone.'" in match.line()
    chosen, _ = load_foreign(tmp_path / "dino.pth", "resnet-tiny#student.")
    assert torch.equal(chosen.backbone.state_dict()["bn1.bias"], student["bn1.bias"])
    assert load_foreign(tmp_path / "dino.pth", "#teacher.")[1].others == ()
    with pytest.raises(ValueError, match="fits no encoder"):
        load_foreign(tmp_path / "dino.pth", "#nobody.")


def itself() -> dict[str, Any]:
    content: dict[str, Any] = {"epoch": 3}
    content["self"] = content
    return content


@pytest.mark.parametrize(
    "content",
    [
        itself(),
        {},
        [],
        3,
        "weights",
        [resnet()],
        {"optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}}},
        {"w": torch.zeros(3, 3).to_sparse()},
        {"w": torch.empty(3, device="meta")},
        {1: torch.zeros(2), None: torch.zeros(2)},
        {"conv1.weight": torch.zeros(1).expand(16, 3, 3, 3)},
        torch.zeros(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_file_that_holds_something_else(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(ValueError, match=r"holds no tensors|fits no encoder") as error:
        load_foreign(tmp_path / "w.pth")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors", "w.bin"])
@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"PK\x03\x04", b"\x80\x02.", b"\xff" * 99])
def test_a_file_of_other_bytes(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot be read as plain weights|holds no tensors"):
        load_foreign(tmp_path / name)


def test_a_file_of_nothing_that_says_it_is_huge(tmp_path: Path) -> None:
    for name in ("w.pth", "w.safetensors"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**36)
        with pytest.raises(ValueError, match="cannot be read as plain weights"):
            load_foreign(tmp_path / name)
    shutil.rmtree(tmp_path)
