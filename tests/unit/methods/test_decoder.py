"""The linear decoder beside the loss of the methods with a per-example head."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from runs import Killed, assert_same_weights, die_at, images, last_checkpoint, small
from small_run import batch, small_facts, small_recipe
from widefield.config.recipe import Recipe
from widefield.methods.decoder import Decoder, gray_target
from widefield.train.build import build
from widefield.train.state import TrainState
from widefield.workflows.pretrain import pretrain

CPU = torch.device("cpu")
METHODS = ("view-contrast", "row-contrast", "s-diet")


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def blocks(image: np.ndarray, side: int) -> np.ndarray:
    """Means of the equal blocks of a gray image [H, W], row by row."""
    h, w = (size // side for size in image.shape)
    return np.array(
        [
            image[i * h : (i + 1) * h, j * w : (j + 1) * w].mean()
            for i in range(side)
            for j in range(side)
        ]
    )


def standardized(gray: np.ndarray) -> np.ndarray:
    centered = gray - gray.mean(axis=0)
    return centered / np.sqrt(((gray - gray.mean()) ** 2).mean())


@given(scale=st.integers(1, 3), channels=st.integers(1, 4), count=st.integers(2, 5))
def test_the_target_is_the_standardized_mean_of_each_block(
    scale: int, channels: int, count: int
) -> None:
    x = draw(count, channels, 16 * scale, 32, seed=scale)
    gray = np.stack([blocks(image.mean(axis=0), 16) for image in x.double().numpy()])
    np.testing.assert_allclose(gray_target(x), standardized(gray), rtol=1e-3, atol=1e-4)


def test_the_target_of_a_window_is_its_means_along_time() -> None:
    x = draw(3, 2, 1, 512)
    gray = x.mean(1).reshape(3, 256, 2).mean(2).double().numpy()
    np.testing.assert_allclose(gray_target(x), standardized(gray), rtol=1e-3, atol=1e-4)


def test_equal_pixels_have_a_target_of_zeros() -> None:
    assert torch.equal(gray_target(torch.full((3, 3, 32, 32), 0.5)), torch.zeros(3, 256))


def test_the_error_is_the_mean_square_of_what_a_linear_map_leaves() -> None:
    decoder, h, x = Decoder(8), 3 * draw(5, 8) + 1, draw(5, 3, 32, 32, seed=1)
    rows = h.double().numpy()
    normed = (rows - rows.mean(1, keepdims=True)) / np.sqrt(rows.var(1, keepdims=True) + 1e-5)
    weight, bias = (p.detach().double().numpy() for p in decoder.linear.parameters())
    left = normed @ weight.T + bias - gray_target(x).double().numpy()
    assert decoder(h, x).item() == pytest.approx((left**2).mean(), rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_error_is_computed_in_full_precision(dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert Decoder(8)(draw(5, 8).to(dtype), draw(5, 3, 32, 32)).dtype == torch.float32


def built(method: str, **settings: Any) -> TrainState:
    """Return a run whose encoder has no batch statistics."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 8), nn.Tanh())
    recipe = small_recipe(method, batch_size=6, projector_batch_norm=False, **settings)
    return build(recipe, small_facts(), device=CPU, encoder=encoder)


def loss(state: TrainState) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
    given = batch()
    views = [given.x.flip(dim) for dim in (2, 3)][: state.method.view_count]
    return *state.model(views, given.index), views


@pytest.mark.parametrize("method", METHODS)
def test_its_error_is_added_with_its_weight(method: str) -> None:
    """The control, weight 0, is the loss as it was, and has no decoder."""
    state, without = built(method, decoder_weight=3.0), built(method, decoder_weight=0.0)
    (total, parts, views), (before, parts_before, _) = loss(state), loss(without)
    error = state.method.decoder(state.encoder(views[0]), views[0])
    torch.testing.assert_close(total, before + 3 * error)
    torch.testing.assert_close(parts["decoder_error"], error)
    assert "decoder_error" not in parts_before
    assert without.method.decoder is None


@pytest.mark.parametrize("method", METHODS)
def test_gradients_in_micro_batches_are_those_of_the_whole_batch(method: str) -> None:
    found = []
    for micro_batch in (None, 2):
        state = built(method, decoder_weight=3.0, micro_batch=micro_batch)
        loss(state)[0].backward()
        found.append({name: p.grad for name, p in state.model.named_parameters()})
    torch.testing.assert_close(found[0], found[1])
    assert found[0]["method.decoder.linear.weight"].abs().max() > 0


@pytest.mark.parametrize("weight", [10.0, 0.0])
def test_it_lowers_the_error_of_the_best_linear_map(weight: float) -> None:
    """The control is the loss alone, after which pixels are no more readable than before."""
    state, given = built("view-contrast", decoder_weight=weight), batch()
    views = [given.x, given.x.flip(3)]
    parameters = [*state.encoder.parameters(), *state.method.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    errors = [left_by_least_squares(state.encoder(given.x), given.x)]
    for _ in range(60):
        optimizer.zero_grad()
        state.model(views, given.index)[0].backward()
        optimizer.step()
    errors.append(left_by_least_squares(state.encoder(given.x), given.x))
    assert (errors[1] < 0.7 * errors[0]) == (weight > 0)


def left_by_least_squares(h: Tensor, x: Tensor) -> float:
    """Mean square of what the two main directions of features leave of the pixels."""
    u = torch.linalg.svd((h - h.mean(0)).detach(), full_matrices=False).U[:, :2]
    target = gray_target(x)
    return float((target - u @ (u.T @ target)).square().mean())


def test_a_run_keeps_it_in_its_checkpoint_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    settings = {**small("view-contrast"), "decoder_weight": 10.0, "epochs": 2}
    pretrain(images(), out=tmp_path / "whole", **settings)
    with pytest.raises(Killed):
        pretrain(images(), out=tmp_path / "cut", on_step=die_at(6), **settings)
    pretrain(images(), out=tmp_path / "cut", resume=True, quiet=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "cut")
    saved = [last_checkpoint(tmp_path / run)["model"] for run in ("whole", "cut")]
    name = "method.decoder.linear.weight"
    assert torch.equal(saved[0][name], saved[1][name])
    assert "decoder_error" in (tmp_path / "whole" / "metrics.csv").read_text().split("\n")[0]


def test_a_run_from_before_the_setting_has_no_decoder() -> None:
    values = small_recipe("view-contrast").to_dict()
    del values["method"]["decoder_weight"]
    assert Recipe.from_dict(values).flat()["decoder_weight"] == 0.0


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ValueError, match="decoder_weight must be a number of at least 0"):
        small_recipe("s-diet", decoder_weight=-1.0)
