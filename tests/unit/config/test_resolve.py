"""The settings of a run from those that were given and from facts: what is chosen and noted."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import example, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st
from torch import nn

from axes import each_value
from widefield.config import defaults
from widefield.config.defaults import (
    BALANCE_BY_STEPS,
    DEFAULT_METHOD,
    FEW_STEPS,
    LONG_METHOD,
    LONG_RUN_EPOCHS,
    LR_MEASURED_ON,
    LR_SCALES,
    MIN_EPOCHS,
    STUDIES,
    batch_size_for,
    with_balance,
)
from widefield.config.recipe import Recipe
from widefield.config.recipes import AUTO, RECIPES, make_recipe
from widefield.config.resolve import RunContext, check, resolve
from widefield.core.form import COLOR_32, InputSpec
from widefield.core.hardware import Memory
from widefield.data import steps_per_epoch
from widefield.encoders import EncoderSettings, build_encoder, family_of
from widefield.encoders.layers import family_of_network
from widefield.methods import METHODS, ViewContrastConfig
from widefield.workflows.plan import plan
from widefield.workflows.pretrain import pretrain

MANY, FEW = 10**6, 40
CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]


def facts(examples: int = FEW, **others: Any) -> RunContext:
    """Facts of small images on a machine that does not depend on the one at hand."""
    usual: dict[str, Any] = {"inputs": COLOR_32, "device": CPU, "memory": Memory(host=10**12)}
    return RunContext(examples=examples, **{**usual, **others})


def resolved(recipe: str | Recipe, settings: dict[str, Any], examples: int = FEW) -> Recipe:
    """The recipe of a run."""
    return resolve(recipe, settings, facts(examples))[0]


def noted(examples: int, **settings: Any) -> str:
    """The notes on a run of `examples` images, by a method and with views that were named."""
    usual = {
        "method": DEFAULT_METHOD,
        "views": "expert",
        "encoder": "resnet-tiny",
        "batch_size": 256,
    }
    return "\n".join(resolve("default", {**usual, **settings}, facts(examples))[1])


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
    assert family_of(EncoderSettings(name=name)) == family
    assert family in LR_SCALES


def test_a_network_without_any_norm_takes_the_smaller_rate() -> None:
    assert family_of_network(nn.Linear(2, 2)) == "networks without batch norm"


@pytest.mark.parametrize("method", ["s-diet", "simclr"])
def test_the_default_recipe_takes_the_rate_of_the_family(method: str) -> None:
    own = METHODS[method]().lr
    settings = {"method": method, "encoder": "vit_tiny_patch16_224"}
    assert resolved("default", settings).method.lr == LR_SCALES["transformers"] * own
    small = {"method": method, "encoder": "resnet-tiny"}
    assert resolved("default", small).method.lr == own


@pytest.mark.parametrize("method", ["view-contrast", "row-contrast", "s-diet"])
def test_rows_keep_the_methods_rate_where_an_encoder_takes_less(method: str) -> None:
    own = METHODS[method]().lr
    settings: dict[str, Any] = {"method": method, "encoder": "vit_tiny_patch16_224"}
    chosen = resolved("default", settings).method.flat()
    assert chosen["lr"] * chosen["head_lr_scale"] == pytest.approx(own)
    line = f"learning rate 0.0006 and {own:g} for head rows, the default for transformers"
    assert line in noted(MANY, **settings)
    assert "for head rows" not in noted(MANY, **settings, head_lr_scale=2.0)
    for own_rate in ({"head_lr_scale": 2.0}, {"lr": 0.5}, {"lr": 0.5, "head_lr_scale": 2.0}):
        kept = resolved("default", {**settings, **own_rate}).method.flat()
        assert kept["head_lr_scale"] == own_rate.get("head_lr_scale", 1.0)
    small = resolved("default", {"method": method, "encoder": "resnet-tiny"}).method
    usual = with_balance(METHODS[method](), steps=100)
    assert small == usual.placed(FEW, 64, Memory(host=10**12))


@pytest.mark.parametrize(
    "given", [{"lr": 0.5}, {"method": METHODS["simclr"](lr=0.5)}], ids=["lr", "a whole method"]
)
def test_a_rate_that_was_given_is_kept(given: dict[str, Any]) -> None:
    settings = {"encoder": "vit_tiny_patch16_224", **given}
    assert resolved("default", settings).method.lr == 0.5
    assert "learning rate" not in noted(MANY, **settings)


def test_a_recipe_of_a_paper_keeps_its_rate() -> None:
    settings: dict[str, Any] = {"encoder": "vit_tiny_patch16_224", "zero_init_last": True}
    dropout = make_recipe("feature-dropout").method.lr
    chosen, notes = resolve("feature-dropout", settings, facts(MANY))
    assert (chosen.method.lr, notes) == (dropout, ())
    whole = make_recipe(**settings)
    assert resolved(whole, {}).method.lr == whole.method.lr


def test_a_rate_that_is_not_the_methods_own_is_noted() -> None:
    assert noted(MANY) == ""
    line = noted(MANY, encoder="vit_tiny_patch16_224", method="simclr")
    assert line.startswith("learning rate 0.00018, the default for transformers: lr sets another")
    line = noted(MANY, encoder="mobilevit_xxs")
    assert "mobilevit_xxs itself was not measured" in line
    line = noted(MANY, encoder="efficientnet_b0")  # the method's own, but not known to be right
    assert "learning rate 0.02, the default for networks with batch norm; efficientnet_b0" in line


@given(epochs=st.integers(1, 10**4))
@example(epochs=39)
@example(epochs=40)
@of_hypothesis(max_examples=10)
def test_the_method_goes_by_the_epochs_and_is_noted(epochs: int) -> None:
    """Rows that were visited often stand in for a second view."""
    for settings in ({}, {"method": AUTO}):
        user: dict[str, Any] = {"epochs": epochs, "encoder": "resnet-tiny", **settings}
        usual = METHODS["row-contrast" if epochs >= 40 else "view-contrast"]()
        assert make_recipe(**user).method == usual
        recipe, notes = resolve("default", user, facts(500))
        bound = "from 40 epochs on" if epochs >= 40 else "below 40 epochs"
        assert recipe.method.name == usual.name
        assert notes[0] == f"method {usual.name}, the default {bound}: method sets another"


@pytest.mark.parametrize(
    ("examples", "method", "why"),
    [
        (64, "row-contrast", "the default from 40 epochs on"),
        (65, "view-contrast", "the default above 64 steps per epoch"),
    ],
)
def test_rows_that_are_old_do_not_stand_in_for_a_second_view(
    examples: int, method: str, why: str
) -> None:
    """A row is as old as an epoch has steps."""
    settings = {"epochs": 40, "encoder": "resnet-tiny", "batch_size": 1, "projector_width": 256}
    for user in (settings, settings | {"method": method}):
        chosen, notes = resolve("default", user, facts(examples))
        assert chosen.method.name == method
        assert chosen.method.flat()["projector_width"] == 256
        assert chosen.batch_size == 1
        assert (f"method {method}, {why}" in "\n".join(notes)) == ("method" not in user)


@each_value(
    ("epochs", [1, 40]),
    ("examples", [64, 65]),
    (
        ("setting", "value", "method"),
        [
            ("cross_entropy_weight", 7.0, "view-contrast"),
            ("label_smoothing", 0.5, "view-contrast"),
            ("normalize", False, "row-contrast"),
        ],
    ),
)
def test_a_setting_that_one_method_alone_has_chooses_it(
    epochs: int, examples: int, setting: str, value: float, method: str
) -> None:
    user = {"epochs": epochs, "encoder": "resnet-tiny", "batch_size": 1, setting: value}
    chosen, notes = resolve("default", user, facts(examples))
    assert (chosen.method.name, chosen.method.flat()[setting]) == (method, value)
    why = "which has the settings that were given"
    assert notes[0] == f"method {method}, {why}: method sets another"


def test_settings_of_both_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="normalize is not a setting of view-contrast"):
        make_recipe(cross_entropy_weight=7.0, normalize=False)


def test_another_method_on_top_of_a_whole_recipe_takes_the_rate_of_the_encoder() -> None:
    whole = resolved("default", {"encoder": "test_vit"})
    other = {"method": "simclr"}
    usual = resolved("default", {"encoder": "test_vit", **other})
    assert resolved(whole, other).method.lr == usual.method.lr == 0.03 * 6e-3
    assert resolved(whole, {**other, "lr": 0.5}).method.lr == 0.5
    assert resolved(whole, {"method": whole.method.name}).method == whole.method


@each_value(
    (
        ("encoder", "share"),
        [("resnet-tiny", 0.03), ("vit_tiny_patch16_224", 0.01), ("convnext_atto", 0.01)],
    ),
    ("method", ["view-contrast", "simclr", "supervised", "distill"]),
)
def test_initial_weights_learn_at_a_share_of_the_methods_rate(
    encoder: str, share: float, method: str
) -> None:
    settings = {"init": "file", "encoder": encoder, "method": method, "epochs": 2}
    chosen, notes = resolve("default", settings, facts(FEW))
    assert chosen.init_lr_scale is not None
    rate = chosen.method.lr * chosen.init_lr_scale
    assert rate == pytest.approx(share * METHODS[method]().lr)
    assert chosen.freeze_norm_layers
    assert any(note.startswith(f"initial weights learn at {rate:g}, norms fixed") for note in notes)
    given = {"init_lr_scale": 0.5, "freeze_norm_layers": False, "init_average": 1.0}
    chosen, notes = resolve("default", settings | given, facts(FEW))
    assert (chosen.init_lr_scale, chosen.freeze_norm_layers, chosen.init_average) == (
        0.5,
        False,
        1.0,
    )
    assert not any(note.startswith("initial weights") for note in notes)


def test_a_run_with_initial_weights_takes_the_method_that_was_measured_on_such_runs() -> None:
    settings: dict[str, Any] = {"epochs": 100, "encoder": "resnet-tiny", "init": "run"}
    assert make_recipe(**settings).method == METHODS["view-contrast"]()
    recipe, notes = resolve("default", settings, facts(500))
    assert recipe.method.name == "view-contrast"
    assert notes[0] == "method view-contrast, the default with init: method sets another"


def test_a_run_with_a_teacher_distills(tmp_path: Path) -> None:
    recipe, notes = resolve("default", {"epochs": 5, "teacher": str(tmp_path)}, facts(500))
    assert recipe.method.name == "distill"
    assert notes[0] == "method distill, the default with teacher: method sets another"


def test_a_method_that_was_named_is_kept_and_not_noted() -> None:
    assert make_recipe(method="simclr", epochs=5).method.name == "simclr"
    assert "method simclr" not in noted(MANY, method="simclr")
    whole = ViewContrastConfig(cross_entropy_weight=3.0)
    assert make_recipe(method=whole, epochs=100).method == whole
    assert make_recipe("s-diet-paper", method=AUTO).method.name == "s-diet"
    paper, notes = resolve("s-diet-paper", {"method": AUTO}, facts(MANY))
    assert (paper.method.name, paper.batch_size, notes) == ("s-diet", 256, ())


@pytest.mark.parametrize(
    ("steps", "scale", "weight"),
    [(1, 10.0, 30.0), (599, 10.0, 30.0), (600, 20.0, 30.0), (2999, 20.0, 30.0), (3000, 5.0, 3.0)],
)
def test_the_balance_of_the_two_terms_goes_by_steps(
    steps: int, scale: float, weight: float
) -> None:
    def balance(**given: float) -> tuple[float, float]:
        chosen = with_balance(METHODS["view-contrast"](**given), steps=steps).flat()
        return chosen["logit_scale"], chosen["cross_entropy_weight"]

    assert balance() == (scale, weight)
    assert balance(logit_scale=3.0) == (3.0, weight)
    assert balance(cross_entropy_weight=7.0) == (scale, 7.0)


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
    user = {"encoder": "resnet-tiny", "epochs": 39, **settings}
    assert resolved("default", user, examples=1030).method.flat()["logit_scale"] == scale


def test_the_balance_that_a_run_began_with_is_in_its_settings(tmp_path: Path) -> None:
    pretrain(
        "photos",
        out=tmp_path / "run",
        epochs=1,
        max_examples=64,
        batch_size=32,
        encoder="resnet-tiny",
        quiet=True,
    )
    recipe = yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())["recipe"]
    assert recipe["method"]["logit_scale"] == 10.0
    assert recipe["method"]["cross_entropy_weight"] == 30.0


@given(examples=st.integers(1, 10**7), max_batch_size=st.integers(1, 4096))
def test_the_batch_of_few_examples(examples: int, max_batch_size: int) -> None:
    """It is the largest power of two with 16 steps an epoch, if that is 64 or more."""
    got = batch_size_for(examples, max_batch_size=max_batch_size)
    assert 1 <= got <= min(max_batch_size, examples)
    powers = [2**i for i in range(6, 30) if 16 * 2**i <= examples]
    assert got == min(max_batch_size, examples, powers[-1] if powers else 64)


def test_a_batch_size_for_few_examples_is_noted_and_one_that_was_given_is_kept() -> None:
    chosen, notes = resolve("default", {}, facts(FEW))
    assert chosen.batch_size == FEW
    assert any("batch size 40, because there are few examples" in note for note in notes)
    assert resolved("default", {"batch_size": 5}).batch_size == 5
    assert "batch size" not in noted(MANY, batch_size=5)
    assert resolved("feature-dropout", {}).batch_size == 256
    assert resolved(make_recipe(), {}).batch_size == 256


@pytest.mark.parametrize(
    ("settings", "views"),
    [
        ({}, "moderate"),
        ({"method": DEFAULT_METHOD}, "moderate"),
        ({"method": ViewContrastConfig(logit_scale=3.0)}, "moderate"),
        ({"method": "simclr"}, "expert"),
        ({"method": LONG_METHOD}, "expert"),
        ({"epochs": LONG_RUN_EPOCHS}, "expert"),
        ({"views": "expert"}, "expert"),
        ({"method": DEFAULT_METHOD, "batch_size": 10, "epochs": 749}, "moderate"),
        ({"method": DEFAULT_METHOD, "batch_size": 10, "epochs": 750}, "expert"),
        ({"init": "file"}, "moderate"),
        ({"init": "file", "method": "simclr", "epochs": 9000}, "moderate"),
    ],
)
def test_the_default_views_are_those_that_were_measured(
    settings: dict[str, Any], views: str
) -> None:
    """From random weights only view-contrast was, and not in runs of 3,000 steps or more."""
    settings = {"epochs": 2, "encoder": "resnet-tiny", **settings}
    chosen, notes = resolve("default", settings, facts(FEW))
    assert chosen.views.names == views
    why = "with initial weights" if "init" in settings else "of view-contrast in short runs"
    note = f"views moderate, the default {why}: views sets others"
    assert (note in notes) == (views == "moderate")


@pytest.mark.parametrize(
    ("rate", "encoder", "size"), [(8000, "resnet-tiny", (1, 8000)), (None, "conv1d", (1, 64))]
)
def test_moderate_views_are_the_default_of_images_only(
    rate: int | None, encoder: str, size: tuple[int, int]
) -> None:
    known = facts(inputs=InputSpec(image_size=size, channels=1, rate=rate))
    chosen, notes = resolve("default", {"epochs": 2, "encoder": encoder}, known)
    assert chosen.views.names == "expert"
    assert not any("views" in note for note in notes)


def test_recipes_and_earlier_runs_keep_their_views() -> None:
    assert resolved("s-diet-paper", {}).views.names == "expert"
    assert resolved(make_recipe(method=DEFAULT_METHOD, epochs=2), {}).views.names == "expert"
    first = resolved("default", {"epochs": 2})
    assert first.views.names == "moderate"
    assert resolved(first, {"epochs": 750, "batch_size": 10}).views.names == "moderate"


def test_every_measured_encoder_exists() -> None:
    for name in LR_MEASURED_ON:
        with torch.device("meta"):
            EncoderSettings(name=name).build(InputSpec(image_size=224), seed=0)


@each_value(("examples", [256, 500, 2000, 5000, 50_000]), ("batch_size", [64, 256]))
def test_a_short_run_is_told_how_many_epochs_would_do(examples: int, batch_size: int) -> None:
    """The advice, taken, is enough, and an epoch less is not."""
    per_epoch = steps_per_epoch(examples, batch_size, drop_last=True)
    enough = math.ceil(FEW_STEPS / per_epoch)
    assert noted(examples, batch_size=batch_size, epochs=enough) == ""
    if enough > 1:
        line = noted(examples, batch_size=batch_size, epochs=enough - 1)
        assert f"{(enough - 1) * per_epoch} steps in all are few" in line
        assert f"epochs={enough} gives {enough * per_epoch}" in line


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({}, "epochs=100 gives 200 and takes row-contrast, or"),
        ({"method": DEFAULT_METHOD}, "epochs=100 gives 200, or"),
        ({"cross_entropy_weight": 3.0}, "epochs=100 gives 200, or"),
        ({"batch_size": 2}, "epochs=10 gives 200"),
    ],
)
def test_advice_that_would_change_the_method_says_so(settings: dict[str, Any], advice: str) -> None:
    """The run that takes the advice has the method that the advice names."""
    settings = {"encoder": "resnet-tiny", "batch_size": 20, "epochs": 2, **settings}
    chosen, notes = resolve("default", settings, facts(FEW))
    line = notes[-1]
    assert advice in line
    epochs = int(line.split("epochs=")[1].split()[0])
    then = resolved("default", {**settings, "epochs": epochs})
    assert then.method.name == ("row-contrast" if "takes" in line else chosen.method.name)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_needs_epochs_says_so(name: str) -> None:
    """The advice, taken, is enough, and an epoch less is not."""
    needed = MIN_EPOCHS.get(name, 1)
    assert needed == (10 if name in ("s-diet", "row-contrast", "diet") else 1)
    settings: dict[str, Any] = {"method": name}
    assert "is seen" not in noted(MANY, epochs=needed, **settings)
    if needed > 1:
        line = noted(MANY, epochs=needed - 1, **settings)
        assert f"each example is seen {needed - 1} times, and {name} needs {needed} epochs" in line
        assert f"epochs={needed}, or method={DEFAULT_METHOD!r}" in line
        assert "each example is seen once, and" in noted(MANY, epochs=1, **settings)
        assert "is seen" not in noted(256, epochs=1, **settings)  # steps are what it lacks first


def test_pretrain_and_plan_give_the_notes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {
        "max_examples": 64,
        "batch_size": 32,
        "epochs": 2,
        "projector_width": 32,
        "encoder": "resnet-tiny",
    }
    pretrain("photos", out=tmp_path / "run", **settings)
    err = " ".join(capsys.readouterr().err.split())
    assert "4 steps in all are few" in err
    assert "epochs=100 gives 200 and takes row-contrast, or choose" in err
    assert "method view-contrast, the default below 40 epochs" in err
    assert any("4 steps in all are few" in line for line in plan("photos", **settings).notes)
    pretrain("photos", out=tmp_path / "run", resume=True)
    assert "few" not in capsys.readouterr().err


def test_a_given_warm_up_that_does_not_end_is_refused() -> None:
    line = r"warmup_steps is 4 and the run has 4 steps: give more epochs or a shorter warm-up"
    with pytest.raises(ValueError, match=line):
        plan("photos", max_examples=40, epochs=4, batch_size=32, warmup_steps=4)
    with pytest.raises(ValueError, match="warmup_epochs and warmup_steps set the same warm-up"):
        plan("photos", max_examples=40, epochs=4, warmup_epochs=1, warmup_steps=4)
    assert resolved("default", {"epochs": 4, "warmup_epochs": 3.5}).warmup_epochs == 3.5
    assert resolved("default", {"epochs": 1}).epochs == 1  # the default one is cut short
    assert resolved("s-diet-paper", {"epochs": 1}).epochs == 1


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"recipe": "defualt"}, "unknown recipe 'defualt'"),
        ({"method": "simcrl"}, "unknown method 'simcrl'"),
        (
            {"epochs": 4, "warmup_epochs": 4},
            "warmup_epochs is 4 and the run has 4 epochs: give more epochs or a shorter warm-up",
        ),
        ({"optimizer": "lars", "decay_bias_and_norm": True}, "lars never decays biases"),
    ],
)
def test_settings_are_checked_before_data_are_opened(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        plan("./no-such-folder.npz", **settings)


SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "method": st.sampled_from([AUTO, "simclr", "s-diet", METHODS["row-contrast"](lr=0.1)]),
    "encoder": st.sampled_from(["auto", "resnet-tiny", "vit_tiny_patch16_224"]),
    "epochs": st.integers(1, 2000),
    "batch_size": st.integers(1, 600),
    "lr": st.floats(1e-5, 1.0),
    "drop_last": st.booleans(),
    "precision": st.sampled_from(["auto", "32", "bf16"]),
    "max_examples": st.integers(1, 10**5),
}
FACTS = st.builds(
    facts,
    st.integers(1, 10**6),
    bf16=st.booleans(),
    device=st.sampled_from([CPU, torch.device("cuda")]),
    memory=st.builds(Memory, host=st.integers(1, 10**10), device=st.integers(0, 10**9)),
)


@given(recipe=st.sampled_from(["default", make_recipe()]), known=FACTS, data=st.data())
@of_hypothesis(max_examples=40)
def test_resolving_is_a_pure_function_and_its_result_is_resolved(
    recipe: str | Recipe, known: RunContext, data: st.DataObject
) -> None:
    settings = data.draw(st.fixed_dictionaries({}, optional=SETTINGS))
    before = dict(settings)
    chosen, notes = resolve(recipe, settings, known)
    assert settings == before
    assert (chosen, notes) == resolve(recipe, settings, known)
    assert resolve(chosen, {}, known)[0] == chosen
    plain = {name: v for name, v in settings.items() if isinstance(v, int | float)}
    assert chosen.flat().items() >= plain.items()
    assert chosen.precision in ("32", "bf16")
    assert settings.get("precision", "auto") in ("auto", chosen.precision)
    assert "auto" not in (chosen.encoder.name, chosen.method.flat().get("head_storage"))
    assert None not in [chosen.method.flat().get(name, 0) for name in BALANCE_BY_STEPS[0]._fields]


@given(known=FACTS, data=st.data())
@of_hypothesis(max_examples=40)
def test_the_notes_name_what_was_chosen_by_a_rule(known: RunContext, data: st.DataObject) -> None:
    """And nothing that was given."""
    settings = data.draw(st.fixed_dictionaries({}, optional=SETTINGS))
    chosen, notes = resolve("default", settings, known)
    method, usual = settings.get("method", AUTO), METHODS[chosen.method.name]()
    is_free = isinstance(method, str) and "lr" not in settings
    begins = [note.partition(",")[0] for note in notes]
    assert (f"method {chosen.method.name}" in begins) == (method == AUTO)
    fewer = "batch_size" not in settings and chosen.batch_size != Recipe.batch_size
    assert (f"batch size {chosen.batch_size}" in begins) == fewer
    rate = [line for line in begins if line.startswith(f"learning rate {chosen.method.lr:g}")]
    is_measured = chosen.encoder.name in LR_MEASURED_ON
    assert len(rate) == (is_free and (chosen.method.lr != usual.lr or not is_measured))
    assert not any("\n" in note for note in notes)


@given(name=st.sampled_from(sorted(RECIPES)), known=FACTS)
@example(name="s-diet-paper", known=facts(planted={"stacked-digits"}))
@of_hypothesis(max_examples=40)
def test_what_is_checked_before_data_are_open_stays(name: str, known: RunContext) -> None:
    early, (late, _) = check(name, {}, planted=known.planted), resolve(name, {}, known)
    later = {"method", "encoder", "precision", "pixels"} | (
        {"batch_size"} if name == "default" else set()
    )
    for field in dataclasses.fields(Recipe):
        if field.name not in later:
            assert getattr(late, field.name) == getattr(early, field.name)
    assert (early.epochs == 500) == ("stacked-digits" in known.planted)


def test_initial_weights_bring_their_architecture_and_refuse_another() -> None:
    init = build_encoder("test_vit", image_size=160, seed=0)
    known = facts(inputs=InputSpec(image_size=160), init=init)
    chosen, _ = resolve("default", {"init": "file"}, known)
    assert (chosen.encoder.name, chosen.image_size) == ("test_vit", 160)
    assert resolve(chosen, {}, known)[0] == chosen
    line = "file has encoder 'test_vit', not 'resnet18': leave encoder out, or leave out init"
    with pytest.raises(ValueError, match=line):
        check("default", {"init": "file", "encoder": "resnet18"}, init=init)


def test_every_rule_names_the_results_that_it_comes_from() -> None:
    rules = {
        name
        for name, value in vars(defaults).items()
        if not name.startswith("_")
        and not isinstance(value, type)
        and getattr(value, "__module__", defaults.__name__) == defaults.__name__
    }
    imported = {"METHODS", "Family", "Kind", "math", "view_contrast"}
    assert STUDIES.keys() == rules - imported - {"STUDIES", "method_with_settings"}
    for rule, names in STUDIES.items():
        assert names, rule
        for name in names:
            assert (ROOT / "studies" / "results" / f"{name}.cpu.json").is_file(), (rule, name)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"freeze_blocks": 2}, "freeze_blocks has no effect on random weights"),
        ({"layer_decay": 0.5}, "layer_decay has no effect on random weights"),
        ({"init_lr_scale": 0.5}, "init_lr_scale has no effect on random weights"),
        ({"freeze_norm_layers": True}, "freeze_norm_layers has no effect on random weights"),
        ({"init_average": 0.5}, "init_average has no effect on random weights"),
        (
            {"init": "file", "method": "supervised", "init_average": 0.5},
            "init_average has no effect on training with labels",
        ),
        ({"micro_batch": 64, "batch_size": 64}, "micro_batch 64 has no effect on batches of 64"),
        ({"views": "none", "method": "simclr"}, "makes the two views of simclr equal"),
    ],
)
def test_settings_without_effect_are_told(settings: dict[str, Any], told: str) -> None:
    assert any(told in note for note in resolve("default", settings, facts())[1])
    assert not any(told in note for note in resolve("default", {}, facts())[1])


@pytest.mark.parametrize("views", ["specaug", "expert+specaug", "waveaug", "time-mask"])
def test_views_of_sounds_are_refused_for_images(views: str) -> None:
    with pytest.raises(ValueError, match="are for sounds or windows: leave them out"):
        resolve("default", {"views": views}, facts())
