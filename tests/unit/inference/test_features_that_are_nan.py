"""Features that are NaN or infinite are refused, and not written into a file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.inference.open_encoder import open_encoder
from widefield.probes import extract
from widefield.workflows.embed import embed


class Wrong(nn.Module):
    """An encoder whose features are `value` for images that are bright."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        h = x.flatten(1)[:, :5]
        return torch.where(x.mean((1, 2, 3))[:, None] > 0.9, self.value, h)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_features_that_are_no_numbers_are_refused(value: float, tmp_path: Path) -> None:
    images = np.zeros((12, 16, 16, 3), np.uint8)
    images[7] = 255
    out = tmp_path / "features.npz"
    with pytest.raises(ValueError, match=r"^features of .* are NaN or infinite: use another"):
        embed(Wrong(value), images, out=out, quiet=True)
    assert not out.exists()
    control = extract(open_encoder(Wrong(value)).build(images), images)
    assert (~control.isfinite()).any(1).nonzero().tolist() == [[7]]
    embed(Wrong(0.5), images, out=out, quiet=True)
    assert out.exists()
