"""Recipes beside their papers: what these state, and what depends on method, views and data."""

import pytest

from pages.published import published
from pages.recipes import MACHINERY, lines
from widefield.config.defaults import LONG_METHOD
from widefield.config.recipes import RECIPES, SOLO_LEARN_PAPER, make_recipe
from widefield.core.form import InputSpec
from widefield.methods import METHODS
from widefield.views import ViewSettings

ENTRIES = [
    (name, method)
    for name, paper in RECIPES.items()
    if paper is not None
    for method in paper.methods
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


def test_what_s_diet_does_not_state_is_marked() -> None:
    papers = {setting.strip("`"): paper for setting, _, paper in lines("s-diet-paper", "s-diet")}
    assert papers["projector_width"] == "unstated"
    assert papers["projector_dim"].startswith("unstated")
    assert papers["warmup_epochs"] == papers["drop_last"] == papers["zero_init_last"] == "unstated"
    paper = make_recipe("s-diet-paper").flat()
    assert (paper["warmup_epochs"], paper["zero_init_last"], paper["precision"]) == (0, False, "32")
    assert (paper["head_lr_scale"], paper["head_init"]) == (1.0, "random")
    assert make_recipe("feature-dropout").precision == "32"
    assert paper["projector_dim"] > 200  # figure 1c counts more large singular values than that


@pytest.mark.parametrize("method", SOLO_LEARN_PAPER.methods)
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


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("default", LONG_METHOD),
        ("s-diet-paper", "s-diet"),
        ("feature-dropout", "simclr"),
        ("solo-learn", "simclr"),
    ],
)
def test_a_recipe_selects_a_method(name: str, method: str) -> None:
    assert make_recipe(name).method.name == method


def test_the_papers_stem_is_small_for_cifar_alone() -> None:
    encoder = make_recipe("s-diet-paper").encoder
    stems = {
        side: encoder.build(InputSpec(image_size=side), seed=0).config.stem for side in (32, 64)
    }
    assert stems == {32: "small", 64: "native"}
    native = make_recipe("s-diet-paper", stem="native").encoder
    assert native.build(InputSpec(image_size=32), seed=0).config.stem == "native"


def test_stacked_digits_have_the_papers_number_of_epochs() -> None:
    spec = "photos+stacked-digits"
    assert make_recipe("s-diet-paper", data=spec).epochs == 500
    assert make_recipe("s-diet-paper", data=spec, epochs=7).epochs == 7
    assert make_recipe("s-diet-paper", data="photos+digits").epochs == 5000
    assert make_recipe(data=spec) == make_recipe()


@pytest.mark.parametrize(
    ("data", "budget"),
    [("photos", 0.05), ("photos+shapes", 0.05), ("photos+digits", 0.05), ("photos+letters", 0.1)],
)
def test_the_viewmakers_budget_is_that_of_the_data(data: str, budget: float) -> None:
    for views in ({}, {"views": "viewmaker:published"}, {"views": "mask-viewmaker"}):
        recipe = make_recipe("feature-dropout", data=data, **views)
        assert recipe.flat()["viewmaker_budget"] == budget
    told = make_recipe("feature-dropout", data=data, viewmaker_budget=0.3)
    assert told.flat()["viewmaker_budget"] == 0.3
    expert = make_recipe("feature-dropout", data=data, views="expert:feature-dropout")
    assert expert.views == ViewSettings.named("expert:feature-dropout")


def test_unknown_recipe_is_named() -> None:
    with pytest.raises(ValueError, match="unknown recipe 'defualt': did you mean 'default'"):
        make_recipe("defualt")
