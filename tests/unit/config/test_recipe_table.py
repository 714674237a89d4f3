"""Recipes beside their papers, and what solo-learn's say."""

import pytest

from pages.published import published
from pages.recipes import MACHINERY, lines
from widefield.config.recipes import RECIPES, make_recipe
from widefield.config.recipes.solo_learn import BASELINES
from widefield.methods import METHODS

ENTRIES = [
    *(("s-diet-paper", method) for method in ("s-diet", "diet")),
    ("feature-dropout", "simclr"),
    *(("solo-learn", method) for method in BASELINES),
]


@pytest.mark.parametrize(("name", "method"), ENTRIES)
def test_what_a_paper_states_is_what_the_recipe_has(name: str, method: str) -> None:
    stated, flat = published(name, method), make_recipe(name, method=method).flat()
    for setting, value in stated.values.items():
        assert flat[setting] == value, setting


@pytest.mark.parametrize(("name", "method"), ENTRIES)
def test_every_setting_has_a_line_and_the_rest_is_unstated(name: str, method: str) -> None:
    source, flat = published(name, method), make_recipe(name, method=method).flat()
    papers = {setting.strip("`"): paper for setting, _, paper in lines(name, method)}
    assert set(flat) - set(MACHINERY) == papers.keys() & flat.keys()
    for key, paper in papers.items():
        stated = key in source.values or key in source.differs or key == "method"
        assert (paper == "unstated") == (not stated), key


def test_the_projectors_shape_is_marked_unstated() -> None:
    papers = {setting.strip("`"): paper for setting, _, paper in lines("s-diet-paper", "s-diet")}
    assert papers["projector_width"] == "unstated"
    assert papers["projector_dim"].startswith("unstated")
    assert papers["warmup_epochs"] == papers["drop_last"] == papers["zero_init_last"] == "unstated"


def test_the_budget_follows_the_data() -> None:
    recipe = make_recipe("feature-dropout", data="photos+letters")
    assert recipe.flat()["viewmaker_budget"] == 0.1


@pytest.mark.parametrize("method", BASELINES)
def test_baselines_are_solo_learns(method: str) -> None:
    flat = make_recipe("solo-learn", method=method).flat()
    lars = method not in ("simsiam", "moco")
    assert (flat["views"], flat["batch_size"], flat["epochs"]) == ("expert", 256, 1000)
    assert (flat["optimizer"], flat["decay_bias_and_norm"]) == ("lars" if lars else "sgd", not lars)
    rates = {"simclr": 0.4, "byol": 1.0, "simsiam": 0.5}
    assert flat["lr"] == rates.get(method, 0.3)
    assert flat["weight_decay"] == (1e-5 if method in ("byol", "simsiam") else 1e-4)
    assert flat["warmup_epochs"] == 10


def test_byol_has_both_directions() -> None:
    assert make_recipe("solo-learn", method="byol").flat()["directions"] == "both"


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "default"])
def test_a_method_without_entry_is_refused_in_one_line(name: str) -> None:
    for method in METHODS:
        if (name, method) in ENTRIES:
            continue
        with pytest.raises(ValueError, match=f"recipe {name} has no settings for {method}") as e:
            make_recipe(name, method=method)
        assert "\n" not in str(e.value)
