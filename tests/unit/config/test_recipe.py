"""Settings, their ranges, their words, and the recipes that combine them."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest
import yaml
from annotated_types import Ge, Gt, Interval
from hypothesis import given
from hypothesis import strategies as st

from axes import each_value
from widefield.cli.signature import written
from widefield.config.arguments import RecipeArguments
from widefield.config.recipe import RUN_SETTINGS, Recipe, settings_by_name
from widefield.config.recipes import make_recipe
from widefield.core.settings import Settings
from widefield.methods import METHODS, SimCLRConfig
from widefield.views import VIEWS, ViewSettings

HAVE_IT = " and ".join(", ".join(settings_by_name()["temperature"]).rsplit(", ", 1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"lr": -1.0}, "lr must be a finite number above 0, got -1.0"),
        ({"lr": float("nan")}, "lr must be a finite number above 0, got nan"),
        ({"lr": "fast"}, "lr must be a finite number above 0, got 'fast'"),
        ({"epochs": 2.5}, "epochs must be a whole number of at least 1, got 2.5"),
        ({"epochs": True}, "epochs must be a whole number of at least 1, got True"),
        ({"max_examples": "all"}, "max_examples must be a whole number above 0 or None, got 'all'"),
        ({"max_examples": 0}, "max_examples must be a whole number above 0 or None, got 0"),
        ({"gather_distributed": 1}, "gather_distributed must be True or False, got 1"),
        ({"encoder": 18}, "encoder must be a string, got 18"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number of at least 0, got -0.1"),
        (
            {"method": "s-diet", "label_smoothing": 1.0},
            "label_smoothing must be a finite number in [0, 1), got 1.0",
        ),
        ({"projector_layers": -1}, "projector_layers must be a whole number of at least 0, got -1"),
        ({"projector_layers": 0, "projector_dim": 64}, "projector_dim 64 is of no use with 0"),
        ({"projector_layers": 0, "projector_width": 9}, "projector_width 9 is of no use with 0"),
        ({"method": "s-diet", "normalize": "yes"}, "normalize must be True or False, got 'yes'"),
        ({"precision": "bf61"}, "precision must be auto, 32 or bf16, got 'bf61'"),
        ({"head_storage": "disc"}, "head_storage must be auto, device, host or disk, got 'disc'"),
        ({"row_loss": "batch-ce"}, "unknown setting 'row_loss': did you mean"),
        ({"epocks": 3}, "unknown setting 'epocks': did you mean 'epochs'"),
        ({"callback": 3}, "unknown setting 'callback': run.yaml lists them"),
        ({"method": "simcrl"}, "unknown method 'simcrl': did you mean 'simclr'"),
        ({"views": "expert+nois"}, "unknown views 'nois': did you mean 'noise'"),
        ({"method": "byol", "ema_decay": 1.1}, "ema_decay must be a finite number in [0, 1]"),
        ({"method": "infonce", "eps": -1.0}, "eps must be a finite number of at least 0, got -1.0"),
        (
            {"method": "moco", "queue_size": 0},
            "queue_size must be a whole number of at least 1, got 0",
        ),
        (
            {"temperature": 0.1},
            "temperature is not a setting of row-contrast with views expert: "
            f"it is one of {HAVE_IT}",
        ),
        (
            {"method": "simclr", "queue_size": 7},
            "queue_size is not a setting of simclr with views expert: it is one of moco",
        ),
        (
            {"noise_std": 0.1},
            "noise_std is not a setting of row-contrast with views expert: "
            "it is one of noise and noise:object",
        ),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        make_recipe(**settings)
    assert "\n" not in str(error.value)


@each_value(("method", METHODS), ("views", ["expert", "viewmaker+flip", "noise+adversarial"]))
def test_a_recipe_survives_its_plain_values(method: str, views: str) -> None:
    """What `run.yaml` holds is the recipe, and the flat names are the recipe too."""
    recipe = make_recipe(method=method, views=views, epochs=3)
    assert Recipe.from_dict(recipe.to_dict()) == recipe
    assert make_recipe(**recipe.flat()) == recipe


def test_unknown_and_missing_keys_of_a_run_are_named() -> None:
    values = make_recipe(method="simclr").to_dict()
    with pytest.raises(ValueError, match="'color' is unknown"):
        Recipe.from_dict({**values, "color": "red"})
    with pytest.raises(ValueError, match="'queue_size' is unknown"):
        Recipe.from_dict({**values, "method": {**values["method"], "queue_size": 9}})
    with pytest.raises(ValueError, match="'epochs' is missing"):
        Recipe.from_dict({k: v for k, v in values.items() if k != "epochs"})


def test_a_name_belongs_to_the_run_or_to_parts_of_one_kind() -> None:
    """No flat name means two things in one recipe."""
    methods = {name for s in METHODS.values() for name in s().flat()}
    views = {name for policy in VIEWS.values() for name in policy.settings().flat()}
    run = {"method", "views", *RUN_SETTINGS}
    assert not methods & views
    assert not run & (methods | views)
    assert settings_by_name().keys() == methods | views


def test_a_method_object_is_as_good_as_its_name() -> None:
    by_object = make_recipe(method=SimCLRConfig(temperature=0.3), epochs=2)
    assert by_object == make_recipe(method="simclr", temperature=0.3, epochs=2)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_parts_that_are_named_again_keep_their_settings(method: str) -> None:
    recipe = make_recipe(method=method, views="cutout+noise", lr=0.123, cutout_size=0.2)
    assert recipe.changed({"method": method, "views": "cutout+noise"}) == recipe
    other = recipe.changed({"views": "cutout"})
    assert other.views.flat() == make_recipe(views="cutout").views.flat()
    assert other.method == recipe.method


def test_words_of_numpy_are_words() -> None:
    words = {"optimizer": "sgd", "encoder": "resnet-tiny", "precision": "32", "init": "run"}
    recipe = make_recipe(**{name: np.str_(word) for name, word in words.items()})
    assert recipe == make_recipe(**words)
    assert yaml.safe_load(yaml.safe_dump(recipe.to_dict())) == recipe.to_dict()


def test_ours_have_names_of_their_own_and_the_published_objective_is_as_published() -> None:
    ours, published = make_recipe(epochs=2).flat(), make_recipe(method="s-diet").flat()
    assert (ours["method"], ours["cross_entropy_weight"]) == ("view-contrast", None)
    assert (published["method"], published["logit_scale"]) == ("s-diet", 1.0)
    assert published["label_smoothing"] == 0.8
    assert "cross_entropy_weight" not in published
    one_view = make_recipe().flat()
    assert (one_view["method"], one_view["logit_scale"]) == ("row-contrast", 10.0)
    assert "label_smoothing" not in one_view
    assert (one_view["projector_width"], published["projector_width"]) == (512, 2048)
    shared = {n for n in one_view if n.startswith(("row_", "head_", "projector_"))}
    assert {n for n in shared if one_view[n] != published[n]} == {"projector_width"}
    assert {n for n in shared if ours[n] != published[n]} == set()


def test_every_setting_says_what_it_means() -> None:
    helps = written()["settings"]
    for part in (
        helps["run"],
        helps["encoder"],
        *helps["methods"].values(),
        *helps["views"].values(),
    ):
        for name, text in part.items():
            assert text.endswith("."), name
            assert "\n" not in text, name


def test_every_setting_of_a_recipe_is_an_argument_and_an_option() -> None:
    for method in METHODS:
        for views in VIEWS:
            names = make_recipe(method=method, views=views).flat()
            assert names.keys() <= RecipeArguments.__annotations__.keys()


@dataclass(frozen=True, kw_only=True)
class Inner(Settings):
    size: Annotated[int, Ge(1)] = 3
    """Size."""


@dataclass(frozen=True, kw_only=True)
class Outer(Settings):
    rate: Annotated[float, Gt(0)] = 1.0
    """Rate."""
    share: Annotated[float, Interval(ge=0, lt=1)] = 0.5
    """Share."""
    kind: Literal["a", "b"] = "a"
    """Kind."""
    some: Annotated[int | None, Ge(2)] = None
    """Some."""
    inner: Inner = Inner(size=4)
    """Inner."""


@given(
    rate=st.floats(1e-3, 1e3),
    share=st.floats(0, 0.999),
    kind=st.sampled_from(["a", "b"]),
    some=st.none() | st.integers(2, 9),
    size=st.integers(1, 99),
)
def test_flat_names_reach_every_field(
    rate: float, share: float, kind: str, some: int | None, size: int
) -> None:
    values = {"rate": rate, "share": share, "kind": kind, "some": some, "inner_size": size}
    changed = Outer().changed(values)
    assert changed.flat() == values
    assert Outer.from_dict(changed.to_dict()) == changed
    assert Outer().changed({}) == Outer()


@given(st.one_of(st.floats(max_value=0), st.just(float("nan")), st.text(), st.booleans()))
def test_nothing_outside_a_range_gets_in(value: object) -> None:
    with pytest.raises(ValueError, match="rate must be"):
        Outer(rate=value)  # type: ignore[arg-type]


def test_a_whole_number_is_a_real_one_too() -> None:
    """So that `--lr 1` and lr: 1.0 in run.yaml are one value."""
    assert repr(Outer(rate=1)) == repr(Outer(rate=1.0))


def test_settings_of_views_reach_every_policy_that_has_them() -> None:
    chain = ViewSettings.named("noise+noise:object").changed({"noise_std": 0.3})
    assert [settings.flat() for _, settings in chain.policies] == [{"noise_std": 0.3}] * 2
