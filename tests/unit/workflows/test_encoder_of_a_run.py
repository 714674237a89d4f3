"""The encoder's settings travel from a call through run.yaml and resume to the exported file."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from widefield.config.recipe import Recipe
from widefield.config.recipes import make_recipe
from widefield.encoders import EncoderSettings, load_encoder
from widefield.inference.open_encoder import load
from widefield.workflows.embed import embed
from widefield.workflows.export import export
from widefield.workflows.plan import plan
from widefield.workflows.pretrain import pretrain

SMALL = {
    "method": "simclr",
    "max_examples": 32,
    "batch_size": 16,
    "image_size": 16,
    "epochs": 1,
    "projector_width": 16,
    "projector_dim": 8,
    "device": "cpu",
    "encoder": "resnet-tiny",
    # oneDNN's bf16 leaves gradients of a 3 x 3 kernel unwritten where a map has one place.
    "precision": "32",
}


def test_a_run_keeps_its_stem_through_resume_and_export(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain("photos", out=run, stem="native", quiet=True, **SMALL)
    recipe = yaml.safe_load((run / "run.yaml").read_text())["recipe"]
    assert recipe["encoder"] == {"name": "resnet-tiny", "stem": "native", "zero_init_last": True}
    for given in ({"epochs": 2, "encoder": "resnet-tiny"}, {"epochs": 3, "stem": "native"}):
        done = pretrain("photos", out=run, resume=True, quiet=True, **given)
        assert done.encoder.config.stem == "native"
    assert done.steps == 6
    export(run, tmp_path / "encoder.safetensors")
    assert load_encoder(tmp_path / "encoder.safetensors").config == done.encoder.config
    with pytest.raises(ValueError, match="has stem 'native', not 'small'"):
        pretrain("photos", out=run, resume=True, quiet=True, stem="small")


def test_naming_the_method_and_views_again_does_not_reset_their_settings(tmp_path: Path) -> None:
    weights = []
    for again in ({}, {"method": "simclr", "views": "noise"}):
        out = tmp_path / f"run-{len(again)}"
        changed = {"temperature": 0.9, "views": "noise", "noise_std": 0.4}
        pretrain("photos", out=out, quiet=True, **SMALL, **changed)
        done = pretrain("photos", out=out, resume=True, quiet=True, epochs=3, **again)
        weights.append(done.encoder.state_dict())
    assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())


def test_an_encoder_is_given_by_name_or_whole() -> None:
    named = make_recipe(encoder="resnet18", stem="native")
    assert named.encoder == EncoderSettings(name="resnet18", stem="native")
    assert make_recipe(encoder=named.encoder) == named
    assert named.changed({"encoder": "resnet50"}).encoder.stem == "native"
    assert Recipe.from_dict(named.to_dict()) == named
    assert named.flat()["encoder"] == "resnet18"
    assert named.flat()["stem"] == "native"


def test_a_stem_that_the_encoder_lacks_is_refused_before_the_run_begins(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'mobilenetv3_small_050' has no small stem"):
        plan("photos", **SMALL | {"encoder": "mobilenetv3_small_050", "stem": "small"})


def test_what_pretrain_returned_stands_for_the_run(tmp_path: Path) -> None:
    run = pretrain("photos", out=tmp_path / "run", quiet=True, **SMALL)
    assert "Encoder(" not in repr(run)
    assert load(run).state_dict().keys() == run.encoder.state_dict().keys()
    assert embed(run, "photos", max_examples=4).features.shape == (4, 128)
    export(run, tmp_path / "encoder.safetensors")
    after = pretrain("photos", out=tmp_path / "after", init=run, quiet=True, **SMALL)
    recipe = yaml.safe_load((after.run / "run.yaml").read_text())["recipe"]
    assert recipe["init"] == str(tmp_path / "run")


def test_how_fresh_weights_begin_does_not_contradict_a_start(tmp_path: Path) -> None:
    """A whole recipe cannot leave it out."""
    pretrain("photos", out=tmp_path / "run", zero_init_last=False, quiet=True, **SMALL)
    whole = make_recipe(**SMALL)
    goes_on = {"init": str(tmp_path / "run"), "quiet": True}
    after = pretrain("photos", out=tmp_path / "after", recipe=whole, **goes_on)
    recipe = yaml.safe_load((after.run / "run.yaml").read_text())["recipe"]
    assert recipe["encoder"]["zero_init_last"] is False
    for other in ({"recipe": whole}, SMALL):
        with pytest.raises(ValueError, match="has zero_init_last False, not True"):
            pretrain("photos", out=tmp_path / "no", zero_init_last=True, **other, **goes_on)


@pytest.mark.parametrize("encoder", [3, None, ["run"]])
def test_what_is_no_encoder_is_named(encoder: Any) -> None:
    with pytest.raises(
        ValueError, match=f"or what pretrain returned, not {type(encoder).__name__}"
    ):
        embed(encoder, "photos", max_examples=4)
