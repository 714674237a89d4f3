"""Settings, their ranges, their words."""

import dataclasses

import pytest

from widefield.recipe import RECIPES, Recipe, check_name, setting_help


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs must be above 0, got 0"),
        ({"lr": -1.0}, "lr must be above 0"),
        ({"lr": float("nan")}, "lr must be a finite number, got nan"),
        ({"temperature": float("inf")}, "temperature must be a finite number, got inf"),
        ({"lr": "fast"}, "lr must be a finite number, got 'fast'"),
        ({"epochs": 2.5}, "epochs must be a whole number, got 2.5"),
        ({"limit": "all"}, "limit must be a whole number, got 'all'"),
        ({"gather": 1}, "gather must be True or False, got 1"),
        ({"encoder": 18}, "encoder must be a word, got 18"),
        ({"weight_decay": -0.1}, "weight_decay must be at least 0"),
        ({"label_smoothing": 1.0}, r"label_smoothing must be in \[0, 1\)"),
        ({"teacher_momentum": 1.1}, r"teacher_momentum must be in \[0, 1\], got 1.1"),
        ({"infonce_eps": -1.0}, "infonce_eps must be at least 0"),
        ({"queue_size": 0}, "queue_size must be above 0"),
        ({"redundancy_weight": 0.0}, "redundancy_weight must be above 0"),
        ({"pair_importance": "gausian"}, "unknown pair_importance 'gausian': did you mean 'gauss"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"precision": "bf61"}, "unknown precision 'bf61': did you mean 'bf16'"),
        ({"epocks": 3}, "unknown setting 'epocks': did you mean 'epochs'"),
        ({"row_store": "disc"}, "unknown row_store 'disc': did you mean"),
    ],
)
def test_bad_settings_are_named(setting: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe.named(**setting)


def test_unknown_recipe_is_named() -> None:
    with pytest.raises(ValueError, match="unknown recipe 'papr': did you mean 'paper'"):
        Recipe.named("papr")


@pytest.mark.parametrize("name", RECIPES)
def test_every_named_recipe_is_valid(name: str) -> None:
    for method in (*RECIPES[name], "s-diet"):
        assert Recipe.named(name, method=method).method == method


def test_paper_recipe_is_appendix_c() -> None:
    paper = Recipe.named("paper")
    assert (paper.epochs, paper.batch_size, paper.lr, paper.weight_decay) == (5000, 256, 1e-3, 0.05)
    assert (paper.label_smoothing, paper.projector_layers, paper.logit_scale) == (0.8, 3, 1.0)
    assert (paper.head_lr_scale, paper.row_update) == (1.0, "estimated")
    assert paper.projector_batch_norm is False


def test_feature_dropout_is_as_published() -> None:
    fd = Recipe.named("feature-dropout", method="simclr")
    assert (fd.epochs, fd.batch_size, fd.opponent_lr) == (200, 256, 1e-3)
    assert (fd.optimizer, fd.lr, fd.weight_decay) == ("sgd", 0.03, 1e-4)
    assert (fd.schedule, fd.warmup_epochs) == ("constant", 0)
    assert (fd.temperature, fd.simclr_loss, fd.viewmaker_budget) == (0.07, "one-sided", 0.05)


@pytest.mark.parametrize("views", ["viewmaker:as_published", "flip+viewmaker:as_published"])
def test_the_published_viewmaker_comes_with_its_loss(views: str) -> None:
    recipe = Recipe.named(method="simclr", views=views)
    assert (recipe.temperature, recipe.simclr_loss) == (0.07, "one-sided")
    assert Recipe.named(method="simclr", views=views, temperature=0.1).temperature == 0.1
    assert Recipe.named(method="s-diet", views=views).temperature == Recipe().temperature
    assert Recipe.named(method="simclr", views="viewmaker").simclr_loss == "nt-xent"


def test_settings_win_over_the_recipe() -> None:
    assert Recipe.named("paper", lr=0.5).lr == 0.5


def test_every_setting_says_what_it_means() -> None:
    texts = setting_help()
    assert texts.keys() == {f.name for f in dataclasses.fields(Recipe)}
    assert all(text.endswith(".") and "\n" not in text for text in texts.values())


def test_without_a_near_match_all_names_are_given() -> None:
    with pytest.raises(ValueError, match="known: a, b"):
        check_name("letter", "zzzz", ("a", "b"))
