"""What a run says before it begins, and the learning rate that it takes by itself."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from widefield.config.recipe import Recipe
from widefield.config.recipes import AUTO, make_recipe
from widefield.config.remarks import FEW_STEPS, batch_of, remarks, unset
from widefield.core.types import InputSpec
from widefield.data import open_dataset, steps_per_epoch
from widefield.encoders import EncoderSettings, rate_of
from widefield.encoders.rates import RATES, RATES_MEASURED_ON, family_of_network
from widefield.methods import DEFAULT_METHOD, METHODS
from widefield.workflows.plan import plan
from widefield.workflows.pretrain import pretrain, resolve_parts, resolve_with_start

LIMIT = 40
"""Images that are opened."""


def resolve(recipe: str | Recipe, settings: dict[str, Any], data: str) -> Recipe:
    """The recipe of a run, as it begins."""
    chosen, _ = resolve_with_start(recipe, settings, data)
    free = unset(recipe, settings)
    return resolve_parts(chosen, open_dataset(data, max_examples=LIMIT), unset=free, given=settings)


def said(examples: int, **settings: Any) -> str:
    """The lines of a run of `examples` images, by a method that was named."""
    usual = {"method": DEFAULT_METHOD, "encoder": "resnet-tiny", "batch_size": 256}
    settings = {**usual, **settings}
    chosen = resolve("default", settings, "photos")
    free = unset("default", settings)
    return "\n".join(remarks(chosen, examples, unset=free, given=settings))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("resnet18", "networks with batch norm"),
        ("mobilenetv3_small_050", "networks with batch norm"),
        ("alexnet", "networks without batch norm"),
        ("convnext_atto", "networks without batch norm"),
        ("mixer_s32_224", "networks without batch norm"),
        ("vit_tiny_patch16_224", "transformers"),
        ("swin_tiny_patch4_window7_224", "transformers"),
        ("cait_xxs24_224", "transformers"),
    ],
)
def test_the_family_is_read_off_the_layers(name: str, family: str) -> None:
    factor, found = rate_of(EncoderSettings(name=name))
    assert (factor, found) == (RATES[found], family)


def test_a_network_without_any_norm_takes_the_smaller_rate() -> None:
    assert family_of_network(nn.Linear(2, 2)) == "networks without batch norm"


@pytest.mark.parametrize("method", ["s-diet", "simclr"])
def test_the_default_recipe_takes_the_familys_rate(method: str) -> None:
    own = METHODS[method]().lr
    settings = {"method": method, "encoder": "vit_tiny_patch16_224"}
    assert resolve("default", settings, "photos").method.lr == RATES["transformers"] * own
    small = {"method": method, "encoder": "resnet-tiny"}
    assert resolve("default", small, "photos").method.lr == own


@pytest.mark.parametrize("method", ["view-contrast", "row-contrast", "s-diet"])
def test_rows_keep_the_methods_rate_where_an_encoder_takes_less(method: str) -> None:
    own = METHODS[method]().lr
    settings: dict[str, Any] = {"method": method, "encoder": "vit_tiny_patch16_224"}
    chosen = resolve("default", settings, "photos").method.flat()
    assert chosen["lr"] * chosen["head_lr_scale"] == pytest.approx(own)
    assert f"learning rate 0.0006 and {own:g} for rows, as transformers" in said(10**6, **settings)
    assert "for rows" not in said(10**6, **settings, head_lr_scale=2.0)
    for own_rate in ({"head_lr_scale": 2.0}, {"lr": 0.5}, {"lr": 0.5, "head_lr_scale": 2.0}):
        kept = resolve("default", {**settings, **own_rate}, "photos").method.flat()
        assert kept["head_lr_scale"] == own_rate.get("head_lr_scale", 1.0)
    small = resolve("default", {"method": method, "encoder": "resnet-tiny"}, "photos").method
    assert small == METHODS[method]().resolved(LIMIT, 64, torch.device("cpu"), steps=2)


@pytest.mark.parametrize(
    "given", [{"lr": 0.5}, {"method": METHODS["simclr"](lr=0.5)}], ids=["lr", "a whole method"]
)
def test_a_rate_that_was_given_is_kept(given: dict[str, Any]) -> None:
    settings = {"encoder": "vit_tiny_patch16_224", **given}
    assert resolve("default", settings, "photos").method.lr == 0.5
    assert "learning rate" not in said(10**6, **settings)


def test_a_recipe_of_a_paper_keeps_its_rate() -> None:
    settings: dict[str, Any] = {"encoder": "vit_tiny_patch16_224", "zero_init_last": True}
    dropout = make_recipe("feature-dropout").method.lr
    assert resolve("feature-dropout", settings, "photos").method.lr == dropout
    assert not unset("feature-dropout", settings)
    whole = make_recipe(**settings)
    assert resolve(whole, {}, "photos").method.lr == whole.method.lr


def test_a_rate_that_is_not_the_methods_own_is_said() -> None:
    assert said(10**6) == ""
    line = said(10**6, encoder="vit_tiny_patch16_224", method="simclr")
    assert line.startswith("learning rate 0.00018, as transformers take: --lr sets another")
    line = said(10**6, encoder="mobilevit_xxs")
    assert "mobilevit_xxs itself was not measured" in line
    line = said(10**6, encoder="efficientnet_b0")  # the method's own, but not known to be right
    assert "learning rate 0.02, as networks with batch norm take; efficientnet_b0 itself" in line


@given(epochs=st.integers(1, 10**4))
def test_the_method_goes_by_the_epochs_and_is_said(epochs: int) -> None:
    """Rows that were seen often stand in for a second view."""
    for settings in ({}, {"method": AUTO}):
        recipe = make_recipe(epochs=epochs, encoder="resnet-tiny", **settings)
        assert recipe.method == METHODS["row-contrast" if epochs >= 40 else "view-contrast"]()
        free = unset("default", settings)
        line = remarks(recipe, 10**6, unset=free, given=settings)[0]
        assert line.startswith(f"method {recipe.method.name}, as runs of ")
        bound = "40 epochs and more" if epochs >= 40 else "fewer than 40 epochs"
        assert line.endswith(f"{bound} take: --method sets another")


@pytest.mark.parametrize(
    ("examples", "method", "runs"),
    [(64, "row-contrast", "of 40 epochs and more"), (65, "view-contrast", "of more than 64 steps")],
)
def test_rows_that_are_old_do_not_stand_in_for_a_second_view(
    examples: int, method: str, runs: str
) -> None:
    """A row is as old as an epoch has steps."""
    settings = {"epochs": 40, "encoder": "resnet-tiny", "batch_size": 1, "projector_width": 256}
    data = open_dataset("photos", max_examples=examples)
    for user in (settings, settings | {"method": method}):
        free = unset("default", user)
        chosen = resolve_parts(make_recipe(**user), data, unset=free, given=user)
        assert chosen.method.name == method
        assert chosen.method.flat()["projector_width"] == 256
        assert chosen.batch_size == 1
        lines = "\n".join(remarks(chosen, examples, unset=free, given=user))
        assert (f"method {method}, as runs {runs}" in lines) == ("method" in free)


@pytest.mark.parametrize("epochs", [1, 40])
@pytest.mark.parametrize("examples", [64, 65])
@pytest.mark.parametrize(
    ("setting", "value", "method"),
    [
        ("cross_entropy_weight", 7.0, "view-contrast"),
        ("label_smoothing", 0.5, "view-contrast"),
        ("normalize", False, "row-contrast"),
    ],
)
def test_a_setting_that_one_method_alone_has_chooses_it(
    epochs: int, examples: int, setting: str, value: float, method: str
) -> None:
    user = {"epochs": epochs, "encoder": "resnet-tiny", "batch_size": 1, setting: value}
    free, data = unset("default", user), open_dataset("photos", max_examples=examples)
    chosen = resolve_parts(make_recipe(**user), data, unset=free, given=user)
    assert (chosen.method.name, chosen.method.flat()[setting]) == (method, value)
    line = remarks(chosen, examples, unset=free, given=user)[0]
    assert line == f"method {method}, whose own settings were given: --method sets another"


def test_settings_of_both_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="normalize is no setting of view-contrast"):
        make_recipe(cross_entropy_weight=7.0, normalize=False)


def test_another_method_on_top_of_a_whole_recipe_takes_the_rate_of_the_encoder() -> None:
    whole = resolve("default", {"encoder": "test_vit"}, "photos")
    other = {"method": "simclr"}
    usual = resolve("default", {"encoder": "test_vit", **other}, "photos")
    assert resolve(whole, other, "photos").method.lr == usual.method.lr == 0.03 * 6e-3
    assert resolve(whole, {**other, "lr": 0.5}, "photos").method.lr == 0.5
    assert resolve(whole, {"method": whole.method.name}, "photos").method == whole.method


def test_a_run_from_a_start_takes_the_method_that_was_measured_on_such_runs() -> None:
    recipe = make_recipe(epochs=100, encoder="resnet-tiny", init="run")
    assert recipe.method == METHODS["view-contrast"]()
    line = remarks(recipe, 10**6, unset=unset("default", {}), given={})[0]
    assert line == "method view-contrast, as runs from a start take: --method sets another"


def test_a_method_that_was_named_is_kept_and_not_said() -> None:
    assert make_recipe(method="simclr", epochs=5).method.name == "simclr"
    assert "method simclr" not in said(10**6, method="simclr")
    whole = METHODS["view-contrast"](cross_entropy_weight=3.0)
    assert make_recipe(method=whole, epochs=100).method == whole
    assert make_recipe("s-diet-paper", method=AUTO).method.name == "s-diet"
    assert not unset("s-diet-paper", {"method": AUTO})


@pytest.mark.parametrize(
    ("steps", "scale", "weight"),
    [(1, 10.0, 30.0), (599, 10.0, 30.0), (600, 20.0, 30.0), (2999, 20.0, 30.0), (3000, 5.0, 3.0)],
)
def test_the_balance_of_the_two_terms_goes_by_steps(
    steps: int, scale: float, weight: float
) -> None:
    cpu = torch.device("cpu")
    usual = make_recipe(epochs=2).method
    chosen = usual.resolved(64, 128, cpu, steps=steps).flat()
    assert (chosen["logit_scale"], chosen["cross_entropy_weight"]) == (scale, weight)
    given = METHODS["view-contrast"](logit_scale=3.0).resolved(64, 128, cpu, steps=steps).flat()
    assert (given["logit_scale"], given["cross_entropy_weight"]) == (3.0, weight)
    given = (
        METHODS["view-contrast"](cross_entropy_weight=7.0)
        .resolved(64, 128, cpu, steps=steps)
        .flat()
    )
    assert (given["logit_scale"], given["cross_entropy_weight"]) == (scale, 7.0)


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, 20.0),  # batches of 64 are chosen, 16 an epoch
        ({"batch_size": 256}, 10.0),
        ({"batch_size": 66}, 10.0),  # 15 an epoch, as the last one is dropped
        ({"batch_size": 66, "drop_last": False}, 20.0),
    ],
)
def test_the_steps_are_those_of_the_batches_that_are_taken(
    settings: dict[str, int], scale: float
) -> None:
    recipe = make_recipe(encoder="resnet-tiny", epochs=39, **settings)
    data = open_dataset("photos", max_examples=1030)
    free = unset("default", settings)
    chosen = resolve_parts(recipe, data, unset=free, given=settings)
    assert chosen.method.flat()["logit_scale"] == scale


def test_the_balance_that_a_run_began_with_is_in_its_settings(tmp_path: Path) -> None:
    pretrain("photos", out=tmp_path / "run", epochs=1, max_examples=64, batch_size=32, quiet=True)
    recipe = yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())["recipe"]
    assert recipe["method"]["logit_scale"] == 10.0
    assert recipe["method"]["cross_entropy_weight"] == 30.0


@given(examples=st.integers(1, 10**7), most=st.integers(1, 4096))
def test_the_batch_of_few_examples(examples: int, most: int) -> None:
    """It is the largest power of two with 16 steps an epoch, if that is 64 or more."""
    got = batch_of(most, examples)
    assert 1 <= got <= min(most, examples)
    powers = [2**i for i in range(6, 30) if 16 * 2**i <= examples]
    assert got == min(most, examples, powers[-1] if powers else 64)


def test_a_batch_that_goes_by_the_examples_is_said_and_one_that_was_given_is_kept() -> None:
    chosen = resolve("default", {}, "photos")
    free = unset("default", {})
    assert chosen.batch_size == LIMIT
    lines = remarks(chosen, 40, unset=free, given={})
    assert any("batches of 40, as the examples are few" in line for line in lines)
    assert resolve("default", {"batch_size": 5}, "photos").batch_size == 5
    assert "batches" not in said(10**6, batch_size=5)
    assert resolve("feature-dropout", {}, "photos").batch_size == 256
    assert resolve(make_recipe(), {}, "photos").batch_size == 256


def test_every_measured_encoder_exists() -> None:
    for name in RATES_MEASURED_ON:
        with torch.device("meta"):
            EncoderSettings(name=name).build(InputSpec(image_size=224), seed=0)


@pytest.mark.parametrize("examples", [256, 500, 2000, 5000, 50_000])
@pytest.mark.parametrize("batch_size", [64, 256])
def test_a_short_run_is_told_how_many_epochs_would_do(examples: int, batch_size: int) -> None:
    """The advice, taken, is enough, and an epoch less is not."""
    per_epoch = steps_per_epoch(examples, batch_size, drop_last=True)
    enough = math.ceil(FEW_STEPS / per_epoch)
    assert said(examples, batch_size=batch_size, epochs=enough) == ""
    if enough > 1:
        line = said(examples, batch_size=batch_size, epochs=enough - 1)
        assert f"{(enough - 1) * per_epoch} steps in all are few" in line
        assert f"--epochs {enough} gives {enough * per_epoch}" in line


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, "--epochs 100 gives 200 and takes row-contrast, or"),
        ({"method": DEFAULT_METHOD}, "--epochs 100 gives 200, or"),
        ({"cross_entropy_weight": 3.0}, "--epochs 100 gives 200, or"),
        ({"batch_size": 2}, "--epochs 10 gives 200"),
    ],
)
def test_advice_that_would_change_the_method_says_so(settings: dict[str, Any], advice: str) -> None:
    """The run that takes the advice has the method that the advice names."""
    settings = {"encoder": "resnet-tiny", "batch_size": 20, "epochs": 2, **settings}
    chosen = resolve("default", settings, "photos")
    free = unset("default", settings)
    line = remarks(chosen, LIMIT, unset=free, given=settings)[-1]
    assert advice in line
    epochs = int(line.split("--epochs ")[1].split()[0])
    then = resolve("default", {**settings, "epochs": epochs}, "photos")
    assert then.method.name == ("row-contrast" if "takes" in line else chosen.method.name)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_needs_visits_says_so(name: str) -> None:
    """The advice, taken, is enough, and an epoch less is not."""
    needed = METHODS[name].min_epochs
    assert needed == (10 if name in ("s-diet", "row-contrast", "diet") else 1)
    settings: dict[str, Any] = {"method": name}
    assert "is seen" not in said(10**6, epochs=needed, **settings)
    if needed > 1:
        line = said(10**6, epochs=needed - 1, **settings)
        assert f"each example is seen {needed - 1} times, and {name} learns less" in line
        assert f"--epochs {needed}, or --method {DEFAULT_METHOD}" in line
        assert "each example is seen once, and" in said(10**6, epochs=1, **settings)
        assert "is seen" not in said(256, epochs=1, **settings)  # steps are what it lacks first


def test_pretrain_says_it_and_plan_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings: dict[str, Any] = {
        "max_examples": 64,
        "batch_size": 32,
        "epochs": 2,
        "projector_width": 32,
    }
    pretrain("photos", out=tmp_path / "run", **settings)
    err = " ".join(capsys.readouterr().err.split())
    assert "4 steps in all are few" in err
    assert "--epochs 100 gives 200 and takes row-contrast, or choose" in err
    assert "method view-contrast, as runs of fewer than 40 epochs take" in err
    assert any("4 steps in all are few" in line for line in plan("photos", **settings).remarks)
    pretrain("photos", out=tmp_path / "run", resume=True)
    assert "few" not in capsys.readouterr().err


def test_a_given_warm_up_that_does_not_end_is_refused() -> None:
    line = r"warmup_epochs is 4 and the run has 4 epochs: give more epochs or a shorter warm-up"
    with pytest.raises(ValueError, match=line):
        plan("photos", max_examples=40, epochs=4, warmup_epochs=4)
    line = r"warmup_steps is 4 and the run has 4 steps: give more epochs or a shorter warm-up"
    with pytest.raises(ValueError, match=line):
        plan("photos", max_examples=40, epochs=4, batch_size=32, warmup_steps=4)
    with pytest.raises(ValueError, match="warmup_epochs and warmup_steps set the same warm-up"):
        plan("photos", max_examples=40, epochs=4, warmup_epochs=1, warmup_steps=4)
    with pytest.raises(ValueError, match="lars never decays biases"):
        plan("photos", max_examples=40, epochs=4, optimizer="lars", decay_bias_and_norm=True)
    assert resolve("default", {"epochs": 4, "warmup_epochs": 3.5}, "photos").warmup_epochs == 3.5
    assert resolve("default", {"epochs": 1}, "photos").epochs == 1  # the default one is cut short
    assert resolve("s-diet-paper", {"epochs": 1}, "photos").epochs == 1
