"""Features of a run: pooled, before pooling, or after the projector that it was trained with."""

from pathlib import Path

import numpy as np
import pytest
import torch

from runs import images, small
from small_run import small_facts, small_recipe
from widefield.audits import bounds, tasks
from widefield.audits.audit import audit
from widefield.inference.features import FeatureKind
from widefield.inference.open_encoder import load, open_encoder
from widefield.methods import METHODS, load_projector
from widefield.train.build import build
from widefield.workflows.embed import embed
from widefield.workflows.pretrain import pretrain
from widefield.workflows.probe import probe


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    pretrain(images(), out=out, **small("s-diet"))
    return out


def floats(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255


@torch.no_grad()
def test_projected_features_are_those_of_the_runs_own_projector(run: Path) -> None:
    head, x = load_projector(run), images()["x"][:8]
    assert head is not None
    expected = head(load(run)(floats(x)))
    shown = open_encoder(run, "projected").build(x)(floats(x))
    torch.testing.assert_close(shown, expected)
    projected = embed(run, {"x": x}, features="projected").features
    np.testing.assert_allclose(projected, expected.numpy(), atol=1e-5)


def test_each_checkpoint_keeps_its_projector(run: Path) -> None:
    extractor = open_encoder(run, "projected")
    folders = sorted((run / "checkpoints").glob("epoch-*"))
    assert len(folders) == 4
    first, last = (extractor.at_epoch(folder).features(images()["x"]) for folder in folders[::3])
    assert torch.equal(last, extractor.features(images()["x"]))
    assert not torch.allclose(first, last)


def test_each_command_takes_projected_features(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "CEILING_STEPS", 4)  # no score is looked at
    monkeypatch.setattr(tasks, "NUM_SEEDS", 1)
    report = probe(run, images(), train_data=images(), features="projected")
    assert report.features == "projected"
    assert report.tasks["y"].floor.keys() == {"pixels", "random", "dictionary", "majority"}
    judged = audit(run, images(), features="projected", cache=tmp_path, quiet=True)
    assert "the audited features are the projected ones" in judged.notes
    plain = audit(run, images(), cache=tmp_path, quiet=True)
    assert judged.features != plain.features
    assert not any("judged" in note for note in plain.notes)


@pytest.mark.parametrize("kind", ["pooled", "feature-map"])
def test_other_features_are_the_encoders_own(run: Path, kind: FeatureKind) -> None:
    x = images()["x"][:4]
    encoder = load(run)
    with torch.no_grad():
        maps = encoder.feature_map(floats(x)).flatten(1)
        expected = {"pooled": encoder(floats(x)), "feature-map": maps}[kind]
        shown = open_encoder(run, kind).build(x)(floats(x))
    torch.testing.assert_close(shown, expected)


@pytest.mark.parametrize("name", ["random", "pixels", "timm:mobilenetv3_small_050"])
def test_an_encoder_without_projector_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has no projector.*take features pooled"):
        open_encoder(name, "projected")


def test_a_method_without_projector_leaves_none(tmp_path: Path) -> None:
    pretrain(images(), out=tmp_path / "run", **{**small("diet"), "epochs": 1})
    with pytest.raises(ValueError, match="has no projector") as refused:
        embed(tmp_path / "run", images(), features="projected")
    assert "\n" not in str(refused.value)


def test_a_run_without_layers_projects_to_its_features(tmp_path: Path) -> None:
    settings = {**small("s-diet"), "epochs": 1, "projector_layers": 0}
    for name in ("projector_dim", "projector_width"):
        del settings[name]
    pretrain(images(), out=tmp_path / "run", **settings)
    pooled, projected = (
        embed(tmp_path / "run", images(), features=kind).features
        for kind in ("pooled", "projected")
    )
    assert np.array_equal(pooled, projected)


def test_every_method_with_a_projector_says_which_it_is() -> None:
    for name, settings in METHODS.items():
        method = build(small_recipe(name), small_facts(), device=torch.device("cpu")).method
        has_one = "projector_layers" in settings().flat()
        assert (method.projection_head() is not None) == has_one, name
