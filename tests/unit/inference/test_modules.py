"""A module of one's own is checked before the work, in every call, and its line says the remedy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import timm
from torch import Tensor, nn

import widefield

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8)


class Returns(nn.Module):
    """A network that returns what `make` makes of its features."""

    def __init__(self, make: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.make = nn.Linear(768, 5), make

    def forward(self, x: Tensor) -> Any:
        return self.make(self.layer(x.flatten(1)))


MODULES: dict[str, tuple[nn.Module, str]] = {
    "tuple": (Returns(lambda h: (h, h)), "returns tuple for images"),
    "dict": (Returns(lambda h: {"h": h}), "returns dict for images"),
    "map": (Returns(lambda h: h[:, :, None, None]), "returns a tensor"),
    "one row": (Returns(lambda h: h[0]), "returns a tensor"),
    "one channel": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten()), "fails for images"),
    "half": (Returns(lambda h: h).half(), "fails for images"),
    "fixed size": (nn.Sequential(nn.Flatten(), nn.Linear(3 * 224 * 224, 2)), "fails for images"),
}
CALLS: dict[str, Callable[[nn.Module], Any]] = {
    "embed": lambda module: widefield.embed(module, IMAGES, quiet=True),
    "Embedder": lambda module: widefield.Embedder(module).fit(IMAGES),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", MODULES)
def test_what_is_no_encoder_is_refused_in_one_line(kind: str, call: str) -> None:
    module, message = MODULES[kind]
    with pytest.raises(ValueError, match=message) as caught:
        CALLS[call](module)
    assert "\n" not in str(caught.value)


def test_a_classifier_is_told() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 1000))
    notes = widefield.embed(net, IMAGES, quiet=True).notes
    assert any("1,000 outputs are those of a classifier" in note for note in notes)
    net[1] = nn.Linear(768, 10)
    notes = widefield.embed(net, IMAGES, quiet=True).notes
    assert not any("classifier" in note for note in notes)


def test_the_size_that_a_module_states_is_used() -> None:
    net = timm.create_model("vit_tiny_patch16_224", num_classes=0, depth=1)
    assert widefield.embed(net, IMAGES[:2], quiet=True).features.shape == (2, 192)
