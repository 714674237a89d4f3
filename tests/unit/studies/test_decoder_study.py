"""The decoder beside the loss of `studies/keeping.py`, by its formula."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from studies.keeping import Decoded, DecodedConfig, Decoder
from widefield.methods import ViewContrast


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def by_formula(decoder: Decoder, h: np.ndarray, x: np.ndarray) -> float:
    """Return the error by loops over the blocks of 2 x 2 pixels of images of 32 x 32."""
    gray = np.array(
        [
            [view[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean() for i, j in np.ndindex(16, 16)]
            for view in x
        ]
    )
    target = (gray - gray.mean(axis=0)) / np.sqrt(((gray - gray.mean()) ** 2).mean())
    normed = (h - h.mean(1, keepdims=True)) / np.sqrt(h.var(1, keepdims=True) + 1e-5)
    weight, bias = (p.detach().double().numpy() for p in decoder.linear.parameters())
    return float(((normed @ weight.T + bias - target) ** 2).mean())


def test_the_error_is_the_mean_square_of_what_a_linear_map_leaves() -> None:
    decoder, h, x = Decoder(8), 3 * draw(5, 8) + 1, draw(5, 3, 32, 32, seed=1)
    expected = by_formula(decoder, h.double().numpy(), x.double().numpy())
    assert decoder(h, x).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("weight", [0.0, 10.0])
def test_the_error_is_added_with_its_weight(weight: float) -> None:
    """The control, weight 0, is view-contrast itself."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8))
    views, index = [draw(6, 3, 32, 32, seed=s) for s in (1, 2)], torch.arange(6)
    sizes = {"projector_width": 16, "projector_dim": 4}
    config = DecodedConfig().changed({**sizes, "decoder_weight": weight})
    torch.manual_seed(0)
    decoded = Decoded(8, config, examples=6)
    torch.manual_seed(0)
    plain = ViewContrast(8, examples=6, **sizes)
    before, after = (method(encoder, views, index).total for method in (plain, decoded))
    error = decoded.decoder(encoder(views[0]), views[0])
    torch.testing.assert_close(after, before + weight * error)
    assert (after == before) == (weight == 0)
