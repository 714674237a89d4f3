"""The projection head: none at all, on the unit sphere or not, and kept as a file."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from axes import each_value
from small_run import small_facts, small_recipe
from widefield.config.recipes import make_recipe
from widefield.head import MemoryStorage, PerExampleHead, batch_cross_entropy, decoupled_contrast
from widefield.methods import METHODS, Diet, ProjectorConfig, load_projector, save_projector
from widefield.methods.diet import index_cross_entropy
from widefield.methods.projector import Projector
from widefield.train.build import build
from widefield.train.state import TrainState

CPU = torch.device("cpu")
PROJECTING = [name for name in METHODS if "projector_layers" in METHODS[name]().flat()]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def built(name: str, **settings: object) -> TrainState:
    return build(small_recipe(name, **settings), small_facts(), device=CPU)


@pytest.mark.parametrize("normalize", [True, False])
def test_features_of_a_row_head_are_on_the_sphere_or_as_they_are(normalize: bool) -> None:
    z, index = 3 * draw(4, 5), torch.arange(4)

    def loss(z: Tensor, rows: Tensor) -> Tensor:
        return batch_cross_entropy(z, rows, scale=2.0, smoothing=0.1)

    head = PerExampleHead(6, 5, loss=loss, init="random", normalize=normalize)
    compared = F.normalize(z, dim=1) if normalize else z
    rows = MemoryStorage(6, 5, seed=0).row[:4]
    torch.testing.assert_close(head(z, index), loss(compared, rows))


def test_the_contrast_takes_rows_as_they_are_without_normalization() -> None:
    z, rows = F.normalize(draw(4, 5), dim=1), draw(4, 5, seed=1)
    unit, raw = (decoupled_contrast(z, rows, scale=3.0, normalize=flag) for flag in (True, False))
    assert not torch.allclose(unit, raw)
    same = decoupled_contrast(z, F.normalize(rows, dim=1), scale=3.0, normalize=False)
    torch.testing.assert_close(unit, same)


@pytest.mark.parametrize("normalize", [True, False])
def test_diet_has_features_on_the_sphere_or_as_they_are(normalize: bool) -> None:
    method = Diet(5, examples=6, normalize=normalize)
    h, index = 3 * draw(4, 5), torch.arange(4)
    compared = F.normalize(h, dim=1) if normalize else h
    expected = index_cross_entropy(compared, method.rows, index, smoothing=0.8)
    torch.testing.assert_close(method(nn.Identity(), [h], index).total, expected)


@pytest.mark.parametrize("name", ["row-contrast", "s-diet", "diet"])
def test_the_switch_reaches_the_method(name: str) -> None:
    losses = []
    for normalize in (True, False):
        state = built(name, normalize=normalize)
        x = [torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))]
        losses.append(float(state.method(state.encoder, x, torch.arange(4)).total.detach()))
    assert losses[0] != losses[1]


def test_diet_is_published_without_normalization() -> None:
    assert not make_recipe(method="diet").flat()["normalize"]
    assert make_recipe(method="s-diet").flat()["normalize"]


def test_without_layers_the_projector_is_the_identity() -> None:
    x = draw(3, 7)
    head = ProjectorConfig(layers=0).build(7)
    assert torch.equal(head(x), x)
    assert not list(head.parameters())


@pytest.mark.parametrize("name", PROJECTING)
def test_every_method_trains_without_a_projector(name: str) -> None:
    settings = {k: v for k, v in METHODS[name]().flat().items() if k == "predictor_width"}
    recipe = make_recipe(method=name, projector_layers=0, batch_size=6, **settings)
    state = build(recipe.changed({"encoder": "resnet-tiny"}), small_facts(), device=CPU)
    views = [torch.rand(6, 3, 16, 16) for _ in range(state.method.view_count)]
    total = state.method(state.encoder, views, torch.arange(6)).total
    total.backward()
    assert torch.isfinite(total)


def test_rows_then_have_the_encoders_width() -> None:
    recipe = make_recipe(method="s-diet", projector_layers=0, encoder="resnet-tiny", batch_size=6)
    state = build(recipe, small_facts(), device=CPU)
    assert state.heads[0].storage.dim == recipe.encoder.width() == 128
    assert state.method.memory(10)["head"].bytes == 10 * 4 * 128


@each_value(("layers", [0, 1, 3]), ("batch_norm", [True, False]))
def test_a_saved_head_gives_the_same_projections(
    tmp_path: Path, layers: int, batch_norm: bool
) -> None:
    head = Projector(7, layers=layers, width=6, out_dim=5, batch_norm=batch_norm)
    head(draw(9, 7))  # moves the statistics of batch normalization
    save_projector(head, tmp_path)
    again = load_projector(tmp_path)
    assert again is not None
    assert torch.equal(again(draw(4, 7, seed=1)), head.eval()(draw(4, 7, seed=1)))


def test_a_folder_without_a_head_has_none_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    assert load_projector(tmp_path) is None
    (tmp_path / "projector.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"cannot be read .*: take pooled features instead"):
        load_projector(tmp_path)
