"""Numbers of the wrong kind or of absurd size are refused before anything is made of them."""

import dataclasses
import resource
from pathlib import Path
from typing import Any

import pytest
import torch

from runs import images, small
from small_run import small_facts
from widefield.config.recipes import make_recipe
from widefield.core.types import Shard
from widefield.methods import METHODS
from widefield.train.build import build
from widefield.workflows.pretrain import pretrain

CPU = torch.device("cpu")
WHOLE_NUMBERS = [name for name, value in make_recipe().flat().items() if type(value) is int]


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
@pytest.mark.parametrize("value", [1.5, 2.0, "2", True, None, [2], 1j, float("nan")])
def test_a_whole_number_is_taken_as_it_is_or_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name.removeprefix('projector_')} must be a whole"):
        make_recipe(**{name: value})


@pytest.mark.parametrize("value", [10**400, float("inf"), "0.1", None, 1j])
def test_a_number_that_no_float_holds(value: Any) -> None:
    with pytest.raises(ValueError, match="lr must be a finite number"):
        make_recipe(lr=value)


@pytest.mark.parametrize("name", ["method", "views", "encoder", "optimizer", "stem"])
@pytest.mark.parametrize("value", [3, None, ["expert"], {}, ""])
def test_a_name_of_another_kind(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown|must be"):
        build(make_recipe(**{name: value}).changed({}), small_facts(), device=CPU)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epochs": 10**12}, "a plan of 1000000000000 steps"),
        ({"projector_width": 10**9}, "a projector of 2 layers, width 1000000000"),
        ({"projector_dim": 10**12}, "a projector of 2 layers, width"),
        ({"projector_layers": 10**9}, "a projector of 1000000000 layers"),
        ({"method": "byol", "predictor_width": 10**12}, "a projector of 2 layers"),
        ({"method": "lejepa", "slices": 10**12}, "slices 1000000000000"),
        ({"method": "vicreg", "projector_width": 10**8}, "a projector of 3 layers"),
    ],
    ids=str,
)
def test_absurd_sizes_are_refused_and_take_no_memory(settings: dict[str, Any], words: str) -> None:
    recipe = make_recipe(**{"batch_size": 12, "encoder": "resnet-tiny"} | settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=f"{words}.* needs .* GB of memory and this machine has"):
        build(recipe, small_facts(), device=CPU)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 200_000  # KiB


COMPARING = [name for name, kind in METHODS.items() if "gather_distributed" in kind().flat()]


@pytest.mark.parametrize("method", COMPARING)
@pytest.mark.parametrize(("batch_size", "world"), [(1, 1), (2, 2)])
def test_batches_of_one_have_nothing_to_tell_apart(
    method: str, batch_size: int, world: int
) -> None:
    recipe = make_recipe(method=method, batch_size=batch_size, encoder="resnet-tiny")
    shard = Shard(0, world)
    with pytest.raises(ValueError, match=rf"choose a batch_size of {2 * world} or more"):
        build(recipe, small_facts(), device=CPU, shard=shard)


@pytest.mark.parametrize("method", ["byol", "simsiam"])
@pytest.mark.parametrize(("batch_size", "world"), [(1, 1), (2, 2)])
def test_batches_of_one_have_nothing_to_normalize_over(
    method: str, batch_size: int, world: int
) -> None:
    """Without batch normalization in the projector, one example is enough."""
    recipe = make_recipe(method=method, batch_size=batch_size, encoder="resnet-tiny")
    shard = Shard(0, world)
    words = rf"{method} normalizes over the examples .* a batch_size of {2 * world} or more"
    with pytest.raises(ValueError, match=words):
        build(recipe, small_facts(), device=CPU, shard=shard)
    plain = recipe.changed({"projector_batch_norm": False})
    assert build(plain, small_facts(), device=CPU, shard=shard).method


@pytest.mark.parametrize("layers", [0, 1, 2])
def test_a_batch_of_one_needs_no_other_example_without_a_hidden_layer(layers: int) -> None:
    settings = {"method": "distill", "projector_layers": layers, "batch_size": 1}
    recipe = make_recipe(**settings, encoder="resnet-tiny")
    if layers < 2:
        assert build(recipe, small_facts(), device=CPU).method
        return
    with pytest.raises(ValueError, match="distill normalizes over the examples of a batch"):
        build(recipe, small_facts(), device=CPU)


@pytest.mark.parametrize(
    ("method", "settings", "words"),
    [
        ("simclr", {"batch_size": 1}, "contrasts the examples of a batch"),
        ("row-contrast", {"head_lr_scale": 1500.0}, "times weight decay 0.05 reaches 1"),
    ],
)
def test_a_refused_number_leaves_no_folder(
    tmp_path: Path, method: str, settings: dict[str, Any], words: str
) -> None:
    run = tmp_path / "deep" / "run"
    with pytest.raises(ValueError, match=words):
        pretrain(images(), out=run, **{**small(method), **settings})
    assert not (tmp_path / "deep").exists()


def test_a_seed_beyond_32_bits() -> None:
    with pytest.raises(ValueError, match=r"seed must be a whole number in \[0, 4294967296\)"):
        dataclasses.replace(make_recipe(), seed=2**32)
