"""A module of one's own is checked before the work, in every call, and its line says the remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor, nn

import widefield
from axes import each_value
from widefield.inference.open_encoder import open_encoder

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)


class Returns(nn.Module):
    """A network that returns what `make` makes of its features."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.make = nn.Linear(768, 5), make

    def forward(self, x: Tensor) -> Any:
        return self.make(self.layer(x.flatten(1)))


MODULES: dict[str, tuple[nn.Module, str]] = {
    "tuple": (Returns(lambda h: (h, h)), r"returns tuple for .*, such as its item 0"),
    "dict": (Returns(lambda h: {"h": h}), r"returns dict for .*, such as its item 'h'"),
    "map": (Returns(lambda h: h[:, :, None, None]), "returns a tensor"),
    "one row": (Returns(lambda h: h[0]), "returns a tensor"),
    "one channel": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten()), "takes 1 channels: give such"),
    "half": (Returns(lambda h: h).half(), r"call .float\(\) on it, which has float16"),
    "fixed size": (nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2)), "give image_size=64"),
    "class ids": (Returns(lambda h: h.long()), "of int64 for images"),
    "complex": (Returns(lambda h: h.to(torch.complex64)), "of complex64 for images"),
}
LABELED = {"x": IMAGES, "kind": np.arange(12) % 2}
CALLS: dict[str, Callable[[nn.Module], Any]] = {
    "embed": lambda module: widefield.embed(module, IMAGES, quiet=True),
    "probe": lambda module: widefield.probe(module, LABELED, train_data=LABELED, quiet=True),
    "audit": lambda module: widefield.audit(module, LABELED, train_data=LABELED, quiet=True),
    "pretrain": lambda module: widefield.pretrain(
        IMAGES, encoder=module, epochs=1, out="run", quiet=True
    ),
    "Embedder": lambda module: widefield.Embedder(module).fit(IMAGES),
}


@each_value(("call", CALLS), ("kind", MODULES))
def test_what_is_no_encoder_is_refused_in_one_line(
    kind: str, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module, message = MODULES[kind]
    with pytest.raises(ValueError, match=message) as caught:
        CALLS[call](module)
    assert "\n" not in str(caught.value)


class Unused(nn.Module):
    """Features, beside a classifier that has no part in them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(768, 5), nn.Linear(5, 1000)

    def forward(self, x: Tensor) -> Any:
        return self.layer(x.flatten(1))


CLASSIFIERS: dict[str, tuple[nn.Module, bool]] = {
    "linear": (nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 1000)), True),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 1000, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        True,
    ),
    "unused": (Unused(), False),
    "ten classes": (nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10)), False),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_classifier_is_told(kind: str) -> None:
    module, is_told = CLASSIFIERS[kind]
    notes = open_encoder(module).notes
    assert any("1,000 outputs are those of a classifier" in note for note in notes) == is_told


@pytest.mark.parametrize("kind", ["linear", "ten classes"])
def test_a_run_that_trains_a_classifier_is_told(kind: str, tmp_path: Path) -> None:
    module, is_told = CLASSIFIERS[kind]
    images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    notes: list[str] = []
    settings: dict[str, Any] = {"method": "simclr", "epochs": 1, "batch_size": 8}
    run = widefield.pretrain(
        images, out=tmp_path / "run", encoder=module, on_note=notes.append, quiet=True, **settings
    )
    assert run.finished
    assert any("1,000 outputs are those of a classifier" in note for note in notes) == is_told


def test_a_classifier_of_a_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    layers = "nn.Flatten(), nn.Linear(3072, 1000)"
    file.write_text(f"from torch import nn\ndef network():\n    return nn.Sequential({layers})\n")
    notes = open_encoder(f"{file}:network").notes
    assert any("1,000 outputs are those of a classifier" in note for note in notes)


def test_the_size_that_a_module_states_is_used() -> None:
    net = timm.create_model("vit_tiny_patch16_224", num_classes=0, depth=1)
    assert widefield.embed(net, IMAGES[:2], quiet=True).features.shape == (2, 192)
