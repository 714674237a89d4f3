"""`--init`: what a run can begin from, what it carries over, and what it says of the result."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torchvision import models

import widefield
from commands import Command
from made_weights import resnet_to_download
from runs import SHORT, Killed, assert_same, die_at, images, uncompared, weights
from widefield.data import open_dataset
from widefield.encoders import build_encoder, load_encoder, save_encoder
from widefield.inference.features import FeatureKind
from widefield.inference.frozen import opened
from widefield.probes.comparison import TEMPLATES
from widefield.train.manifest import Manifest
from widefield.train.run import Pretrained
from widefield.train.run_dir import RunFolder
from widefield.workflows.classify import _readouts

COMPARED: dict[str, Any] = {k: v for k, v in SHORT.items() if k != "encoder"} | {"epochs": 1}
RUN: dict[str, Any] = COMPARED | {"max_examples": 28, "batch_size": 14}
"""Too few images to compare before and after, which takes longer than the run."""
# From bf16, 3x3 kernels on maps of one pixel get undefined gradients on some CPUs.
OF_OTHERS: dict[str, Any] = {"precision": "32"}
"""For networks of other libraries, whose maps of 16 pixels end at one."""
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def adapted(out: Path, start: object, **settings: Any) -> Pretrained:
    return widefield.pretrain(images(), out=out, **{**RUN, "init": start, **settings})


def x(channels: int = 3, side: int = 16) -> Tensor:
    return torch.rand(4, channels, side, side, generator=torch.Generator().manual_seed(0))


def normalized(x: Tensor, mean: tuple[float, ...] = MEAN, std: tuple[float, ...] = STD) -> Tensor:
    return (x - torch.tensor(mean).view(1, -1, 1, 1)) / torch.tensor(std).view(1, -1, 1, 1)


def settled(model: nn.Module) -> nn.Module:
    """With batch statistics that are not the initial ones, in evaluation mode."""
    model.train()
    with torch.no_grad():
        model(torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(1)))
    return model.eval()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run to go on from."""
    out = tmp_path_factory.mktemp("first") / "run"
    widefield.pretrain(images(), out=out, **{**SHORT, "epochs": 1, "seed": 3})
    return out


@pytest.fixture(scope="module")
def whole(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went on from it, and that nothing stopped."""
    return adapted(tmp_path_factory.mktemp("whole") / "run", str(run)).run


def assert_starts_at(out: Path, expected: Tensor, given: Tensor | None = None) -> None:
    """The run kept a start with these features, and moved away from it."""
    given = x() if given is None else given
    start, encoder = (load_encoder(folder).eval() for folder in (out / "init", out))
    with torch.no_grad():
        torch.testing.assert_close(start(given), expected, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(encoder(given), expected, rtol=1e-3, atol=1e-4)


def test_a_run_goes_on_from_a_run(run: Path, whole: Path) -> None:
    with torch.no_grad():
        assert_starts_at(whole, load_encoder(run).eval()(x()))
    config, before = load_encoder(whole).config, load_encoder(run).config
    assert (config.mean, config.std, config.name) == (before.mean, before.std, before.name)


def test_its_file_is_the_same_start(run: Path, whole: Path, tmp_path: Path) -> None:
    adapted(tmp_path / "of-file", run / "encoder.safetensors")
    assert_same(whole, tmp_path / "of-file")


def torchvision_file(folder: Path) -> tuple[str, Tensor]:
    torch.manual_seed(0)
    model = settled(models.resnet18(weights=None))
    torch.save({"state_dict": model.state_dict()}, folder / "weights.pth")
    model.fc = nn.Identity()
    return f"{folder / 'weights.pth'}@resnet18", model(normalized(x()))


def torchvision_own_file(folder: Path) -> tuple[str, Tensor]:
    torch.manual_seed(0)
    model = settled(models.shufflenet_v2_x0_5(weights=None))
    torch.save(model.state_dict(), folder / "weights.pth")
    model.fc = nn.Identity()
    return f"{folder / 'weights.pth'}@torchvision:shufflenet_v2_x0_5", model(normalized(x()))


def timm_file(folder: Path) -> tuple[str, Tensor]:
    torch.manual_seed(0)
    model = settled(timm.create_model("resnet10t"))
    safetensors.torch.save_file(model.state_dict(), folder / "model.safetensors")
    model.reset_classifier(0)
    return f"{folder / 'model.safetensors'}@resnet10t", model(normalized(x()))


def model_folder(folder: Path) -> tuple[str, Tensor]:
    """A folder as timm's `save_for_hf` lays it out."""
    torch.manual_seed(0)
    model = settled(timm.create_model("resnet10t"))
    mean, std = (0.1, 0.2, 0.3), (0.3, 0.2, 0.1)
    facts = {"input_size": [3, 32, 32], "mean": mean, "std": std, "num_classes": 1000}
    config = {"architecture": "resnet10t", "num_classes": 1000, "pretrained_cfg": facts}
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config))
    safetensors.torch.save_file(model.state_dict(), folder / "model" / "model.safetensors")
    model.reset_classifier(0)
    return str(folder / "model"), model(normalized(x(), mean, std))


def module(folder: Path) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = settled(timm.create_model("resnet10t", num_classes=0))
    return model, model(normalized(x()))


def own_module(folder: Path) -> tuple[nn.Module, Tensor]:
    encoder = build_encoder("resnet-tiny", image_size=16, seed=9)
    return encoder, encoder.eval()(x())


KINDS = [torchvision_file, torchvision_own_file, timm_file, model_folder, module, own_module]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_before_the_first_step_the_features_are_those_of_the_start(
    kind: Any, tmp_path: Path
) -> None:
    with torch.no_grad():
        start, expected = kind(tmp_path)
    adapted(tmp_path / "run", start, **OF_OTHERS)
    assert_starts_at(tmp_path / "run", expected)
    if isinstance(start, nn.Module):  # what the user holds is left as it was
        with torch.no_grad():
            again = start(x() if kind is own_module else normalized(x()))
        torch.testing.assert_close(again, expected)


def test_published_weights_come_from_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    with pytest.raises(
        ValueError, match=r"no weights of torchvision:shufflenet\S* .* add download"
    ):
        adapted(tmp_path / "run", "torchvision:shufflenet_v2_x0_5")
    torch.manual_seed(0)
    model = settled(models.shufflenet_v2_x0_5(weights=None))
    url = models.ShuffleNet_V2_X0_5_Weights.DEFAULT.url
    file = tmp_path / "torch" / "hub" / "checkpoints" / url.rsplit("/", 1)[1]
    file.parent.mkdir(parents=True)
    torch.save(model.state_dict(), file)
    adapted(tmp_path / "run", "torchvision:shufflenet_v2_x0_5", **OF_OTHERS)
    model.fc = nn.Identity()
    with torch.no_grad():
        assert_starts_at(tmp_path / "run", model(normalized(x())))


def test_the_network_is_asked_only_with_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.safetensors"
    asked = resnet_to_download(file, monkeypatch)
    with pytest.raises(ValueError, match="add download"):
        adapted(tmp_path / "run", "timm:resnet10t")
    assert asked == []
    ahead = widefield.plan(
        images(),
        init="timm:resnet10t",
        download=True,
        image_size=16,
        max_examples=16,
        batch_size=8,
        **OF_OTHERS,
    )
    assert ahead.recipe.encoder.name == "resnet10t"
    assert asked[0].startswith("timm/resnet10t")
    file.unlink()
    adapted(tmp_path / "run", "timm:resnet10t", download=True, **OF_OTHERS)
    assert len(asked) > 1


def test_an_adapted_run_resumes_bit_for_bit_without_its_start(run: Path, tmp_path: Path) -> None:
    settings = COMPARED | {"epochs": 2}
    adapted(tmp_path / "whole", str(run), **settings)
    gone = tmp_path / "gone"
    gone.mkdir()
    for name in ("encoder.safetensors", "encoder.json"):
        (gone / name).write_bytes((run / name).read_bytes())
    with pytest.raises(Killed):
        adapted(tmp_path / "killed", str(gone), on_step=die_at(6), **settings)
    for file in gone.iterdir():
        file.unlink()
    widefield.pretrain(images(), out=tmp_path / "killed", resume=True, quiet=True)
    assert_same(tmp_path / "whole", tmp_path / "killed")
    whole, killed = ((tmp_path / name / "comparison.json") for name in ("whole", "killed"))
    assert whole.read_text() == killed.read_text()


def test_a_run_killed_before_its_first_checkpoint_begins_again(
    run: Path, whole: Path, tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        adapted(tmp_path / "killed", str(run), on_step=die_at(1))
    widefield.pretrain(images(), out=tmp_path / "killed", resume=True, quiet=True)
    assert_same(whole, tmp_path / "killed")


@pytest.mark.parametrize(
    ("owner", "before"),
    [(RunFolder, "write_settings"), (RunFolder, "finish_start"), (Manifest, "write")],
)
def test_a_run_killed_as_it_begins_takes_no_folder(
    run: Path,
    whole: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    before: str,
) -> None:
    """Until there is a `run.yaml` the same command begins again; then a resume does."""

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(owner, before, die)
        patched.setattr(RunFolder, "remove_incomplete", lambda self: None)  # as by SIGKILL
        with pytest.raises(Killed):
            adapted(tmp_path / "killed", str(run))
    if before == "write_settings":
        adapted(tmp_path / "killed", str(run))
    else:
        widefield.pretrain(images(), out=tmp_path / "killed", resume=True, quiet=True)
    assert_same(whole, tmp_path / "killed")
    assert not list((tmp_path / "killed").glob(".*.draft"))
    start = tmp_path / "killed" / "init" / "encoder.safetensors"
    assert start.read_bytes() == (whole / "init" / "encoder.safetensors").read_bytes()


def test_a_lost_start_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(Killed):
        adapted(tmp_path / "killed", str(run), on_step=die_at(1))
    (tmp_path / "killed" / "init" / "encoder.safetensors").unlink()
    with pytest.raises(ValueError, match=r"no encoder at .*init: give a folder"):
        widefield.pretrain(images(), out=tmp_path / "killed", resume=True, quiet=True)


def test_gray_images_of_another_size(run: Path, tmp_path: Path) -> None:
    gray = np.random.default_rng(0).integers(0, 256, (64, 20, 20, 1)).astype(np.uint8)
    settings = {name: value for name, value in RUN.items() if name != "image_size"}
    done = widefield.pretrain({"x": gray}, out=tmp_path / "run", init=str(run), **settings)
    config, before = load_encoder(tmp_path / "run" / "init").config, load_encoder(run).config
    assert (config.channels, config.image_size) == (1, (20, 20))
    assert config.mean == pytest.approx([sum(before.mean) / 3])
    assert done.encoder(x(1, 20)).shape == (4, 128)


def sounds(seconds: float, rate: int) -> dict[str, Any]:
    waves = np.random.default_rng(0).normal(0, 3000, (28, round(seconds * rate)))
    return {"sounds": waves.astype(np.int16), "sample_rate": np.array(rate)}


@pytest.mark.parametrize("encoder", ["conv1d", "resnet-tiny"])
def test_sounds_of_another_length_and_rate(encoder: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": 1, "batch_size": 14, "quiet": True}
    first, second = tmp_path / "first", tmp_path / "second"
    widefield.pretrain(sounds(0.5, 4000), out=first, seconds=0.5, encoder=encoder, **settings)
    faster = sounds(1.0, 8000)
    done = widefield.pretrain(faster, out=second, init=str(first), seconds=1.0, **settings)
    config = done.encoder.config
    assert (config.kind, config.rate, config.image_size) == ("sounds", 4000, (1, 4000))
    assert widefield.embed(str(second), faster, quiet=True).features.shape == (28, done.encoder.dim)
    with pytest.raises(ValueError, match="trained on sounds at 4000 Hz, not 8000: leave"):
        widefield.pretrain(
            faster, out=tmp_path / "third", init=str(first), sample_rate=8000, **settings
        )


def test_a_start_of_another_kind_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"kind of data differs: sounds for .*, images for the initial encoder"
    ):
        widefield.pretrain(sounds(0.5, 4000), out=tmp_path / "run", init=str(run), quiet=True)


def test_a_vision_transformer_has_images_resized_to_its_size(tmp_path: Path) -> None:
    vit = build_encoder("vit_tiny_patch16_224,depth=1", image_size=32, seed=0)
    save_encoder(vit, tmp_path / "vit")
    settings = {**RUN, "image_size": None, "init": str(tmp_path / "vit")}
    widefield.pretrain(images(), out=tmp_path / "run", **settings)
    assert load_encoder(tmp_path / "run").config.image_size == (32, 32)


def test_fine_tuning_with_labels(run: Path, tmp_path: Path) -> None:
    done = adapted(tmp_path / "run", str(run), **COMPARED, method="supervised")
    assert done.comparison is not None
    assert done.comparison.linear == {}  # labels that were trained on say nothing


def test_the_command_says_what_is_kept_and_what_came_out(
    command: Command, run: Path, in_tmp: Path
) -> None:
    np.savez("data.npz", **images())
    words = ["--epochs", 1, "--batch-size", 16, "--image-size", 16, "--init", run]
    code, out, err = command("pretrain", "data.npz", "--out", "run", *words)
    assert code == 0, err
    said = " ".join(err.split())
    assert "init: resnet-tiny, mean" in said
    assert "weights: 100 % trained, the rest initial (--init-average)" in out
    assert "the initial encoder is run/init, whose features" in " ".join(out.split())
    verdict = json.loads(Path("run/comparison.json").read_text())["verdict"]
    assert f"{TEMPLATES[verdict].format('the initial encoder')}: " in out
    shown = command.json("pretrain", "data.npz", "--out", "run2", *words)
    assert shown["comparison"]["verdict"] == verdict


def test_the_start_in_the_folder_is_an_encoder_to_compare(
    command: Command, whole: Path, in_tmp: Path
) -> None:
    assert set(weights(whole)) == set(weights(whole / "init"))
    np.savez("data.npz", **images())
    scored = command.json("probe", whole / "init", "data.npz", "--train-data", "data.npz")
    assert scored["tasks"]["y"]["accuracy"] > 0.5


BEFORE: dict[str, Any] = {"init_lr_scale": 0.3, "freeze_norm_layers": False, "init_average": 1.0}
"""The settings of starts that lost what strong ones know."""


@pytest.fixture(scope="module")
def adapted_photos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pretrained]:
    """Weights trained on labels, adapted by default, as before, and at 1,000 times the rate."""
    folder = tmp_path_factory.mktemp("photos")
    labeled = {"max_examples": 500, "batch_size": 32, "image_size": 16, "quiet": True}
    with uncompared():
        widefield.pretrain("photos", out=folder / "first", method="supervised", epochs=4, **labeled)
    arms: dict[str, dict[str, Any]] = {
        "default": {},
        "before": {**BEFORE, "views": "expert"},
        "ruined": {**BEFORE, "init_lr_scale": 1000.0, "method": "s-diet", "views": "none"},
    }
    start = str(folder / "first")
    return {
        name: widefield.pretrain(
            "photos", out=folder / name, init=start, epochs=2, **labeled, **settings
        )
        for name, settings in arms.items()
    }


def test_adapting_by_default_keeps_what_the_start_knows(
    adapted_photos: dict[str, Pretrained],
) -> None:
    """With the settings of before more is lost: the control."""
    compared = {name: done.comparison for name, done in adapted_photos.items()}
    lost = {name: 1 - found.kept.r2 for name, found in compared.items() if found and found.kept}
    assert lost["default"] < 0.02
    assert lost["before"] > 3 * lost["default"]
    assert compared["default"] is not None
    assert compared["default"].linear["class"].difference > -0.02
    assert compared["default"].without_labels not in ("worse", "inconclusive")


def test_a_run_hands_over_the_average_of_initial_and_trained_weights(
    adapted_photos: dict[str, Pretrained], run: Path, tmp_path: Path
) -> None:
    """With a share of 1 it hands over the trained ones: the control."""
    whole = adapted(tmp_path / "run", str(run), init_average=1.0)
    assert whole.trained_share == 1
    assert (whole.run / "projector.safetensors").exists()
    for done in (adapted_photos["default"], whole):
        folder, share = done.run, done.trained_share
        assert share is not None
        last_epoch = max((folder / "checkpoints").glob("epoch-*"))
        first, last = weights(folder / "init"), weights(last_epoch)
        floats = {k: w for k, w in weights(folder).items() if w.is_floating_point()}
        for key, weight in floats.items():
            assert torch.allclose(weight, first[key].lerp(last[key], share), atol=1e-7)
        assert any(not torch.equal(first[key], last[key]) for key in first)


def test_a_run_that_ends_worse_hands_over_its_start(adapted_photos: dict[str, Pretrained]) -> None:
    ruined, folder = adapted_photos["ruined"], adapted_photos["ruined"].run
    assert ruined.comparison is not None
    assert (ruined.comparison.verdict, ruined.comparison.without_labels) == ("worse", "worse")
    assert "more labels needed" not in ruined.comparison.reason
    assert ruined.adapted == folder / "checkpoints" / "epoch-00002"
    first, last = weights(folder / "init"), weights(ruined.adapted)
    handed_over = weights(folder)
    assert all(torch.equal(handed_over[name], first[name]) for name in first)
    assert not all(torch.equal(last[name], first[name]) for name in first)
    assert not (folder / "projector.safetensors").exists()
    images = np.zeros((3, 16, 16, 3), dtype=np.uint8)
    wide = widefield.embed(folder, images, features="wide", quiet=True)  # by its own readout
    assert not any("fitted here" in note for note in wide.notes)
    assert f"{folder} hands over the initial encoder; the adapted one is" in str(ruined)
    resumed = widefield.pretrain("photos", out=folder, resume=True, epochs=3, quiet=True)
    assert resumed.steps == 3 * ruined.steps // 2


def test_classify_takes_the_features_of_the_initial_weights_too(
    adapted_photos: dict[str, Pretrained], tmp_path: Path
) -> None:
    """Beside those of the run, and alone; not where these are its own, or a kind is asked for."""
    run = adapted_photos["default"].run
    photos = {"x": open_dataset("photos", image_size=16, max_examples=40).images}

    def readouts(encoder: Path, features: FeatureKind | None = None) -> dict[str, Tensor]:
        extractor, dataset = opened(encoder, photos, features=features, quiet=True)
        return _readouts(extractor.ready(dataset), dataset, quiet=True)

    own, initial, both = readouts(run, "wide"), readouts(run / "init"), readouts(run)
    assert [*own, *initial] == ["wide", "wide", "pooled"]
    assert not torch.equal(own["wide"], initial["wide"])
    assert list(both) == ["wide and initial", "pooled", "initial"]
    assert torch.equal(both["wide and initial"], torch.cat([own["wide"], initial["wide"]], dim=1))
    assert torch.equal(both["initial"], initial["wide"])
    labels = {f"row {k}": "ab"[k % 2] for k in range(30)}
    found = widefield.classify(run, photos, labels=labels, quiet=True)
    assert any(re.search(r"by wide and initial, \S+ by pooled, ", note) for note in found.notes)
    handed_over = Path(shutil.copytree(run, tmp_path / "run"))
    save_encoder(load_encoder(run / "init"), handed_over)
    assert list(readouts(handed_over)) == ["wide", "pooled"]


def test_plan_counts_the_start(command: Command, in_tmp: Path) -> None:
    save_encoder(build_encoder("resnet10t", image_size=16, seed=0), in_tmp / "start")
    np.savez("data.npz", **images())
    words = ["plan", "data.npz", "--batch-size", 4]
    small, large = (
        command.json(*words, *more) for more in (["--encoder", "resnet-tiny"], ["--init", "start"])
    )
    assert large["encoder"] == "resnet10t"
    assert large["parts"]["weights"]["bytes"] > 10 * small["parts"]["weights"]["bytes"]


def refused(command: Command, *words: object) -> str:
    np.savez("data.npz", **images())
    line = command.refused("pretrain", "data.npz", "--out", "run", *words)
    assert not Path("run").exists()
    return line


def test_a_start_by_its_path_is_found_from_any_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    adapted(tmp_path / "one", run.name)
    monkeypatch.chdir(tmp_path)
    recipe = RunFolder(path=tmp_path / "one").recipe()
    widefield.pretrain(images(), out=tmp_path / "two", recipe=recipe, quiet=True)
    names = [RunFolder(path=tmp_path / name).recipe().init for name in ("one", "two")]
    assert names == [str(run)] * 2


def test_bad_starts_are_one_line(command: Command, run: Path, in_tmp: Path) -> None:
    assert "no encoder 'nowhere'" in refused(command, "--init", "nowhere")
    assert "leave init out" in refused(command, "--init", "random")
    assert "leave init out" in refused(command, "--init", "pixels")
    line = refused(command, "--init", run, "--encoder", "resnet18")
    assert "has encoder 'resnet-tiny', not 'resnet18': leave encoder out" in line
    assert "has stem 'small', not 'native'" in refused(command, "--init", run, "--stem", "native")
    assert "did you mean" in refused(command, "--init", "timm:resnet81")


def test_weights_that_do_not_fit_are_named(command: Command, in_tmp: Path) -> None:
    model = timm.create_model("resnet10t")
    safetensors.torch.save_file(model.state_dict(), "model.safetensors")
    line = refused(command, "--init", "model.safetensors@resnet50")
    assert "fits no encoder" in line
    assert "resnet50" in line
    state = model.state_dict()
    state["layer1.0.conv1.weight"] = state["layer1.0.conv1.weight"][:, :3].contiguous()
    safetensors.torch.save_file(state, "bent.safetensors")
    line = refused(command, "--init", "bent.safetensors@resnet10t")
    assert "others in another shape: layer1.0.conv1.weight" in line
    state["layer1.0.conv1.weight"] = torch.full_like(
        model.state_dict()["layer1.0.conv1.weight"], torch.nan
    )
    safetensors.torch.save_file(state, "nan.safetensors")
    line = refused(command, "--init", "nan.safetensors@resnet10t")
    assert "'layer1.0.conv1.weight' holds NaN" in line


def test_folders_of_other_libraries_are_said(command: Command, in_tmp: Path) -> None:
    folder = in_tmp / "model"
    folder.mkdir()
    safetensors.torch.save_file({"w": torch.zeros(1)}, folder / "model.safetensors")
    for text, message in {
        '{"model_type": "convnextv2"}': "a model folder of 'convnextv2'",
        "{": "holds no JSON",
        "[]": "describes no model",
        '{"architecture": "resnet10t"}': "lacks input_size",
        '{"architecture": "resnet81", "pretrained_cfg": {"input_size": [1, 8, 8], "mean": [0], '
        '"std": [1]}}': "did you mean",
    }.items():
        (folder / "config.json").write_text(text)
        assert message in refused(command, "--init", folder)


def test_a_module_that_is_no_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Linear returns a tensor .*: return features \[B, D\]"):
        adapted(tmp_path / "run", nn.Linear(32, 3))
    assert not (tmp_path / "run").exists()
