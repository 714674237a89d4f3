"""`--features wide` through all commands, as a user types it, and in every export."""

import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import soundfile
import timm
import torch
from sklearn.base import clone
from torch import Tensor, nn

import widefield
from commands import Command
from made_weights import resnet_file
from runs import Killed, images, signal_at
from widefield.encoders import READOUT_FILE, load_readout, save_readout
from widefield.inference.open_encoder import open_encoder
from widefield.train import run as run_file
from widefield.workflows.pretrain import pretrain

SIDE = 32
SETTINGS: dict[str, Any] = {
    "image_size": SIDE,
    "batch_size": 16,
    "epochs": 1,
    "encoder": "resnet-tiny",
    "stem": "native",
    "quiet": True,
}


def pixels(count: int = 64, side: int = SIDE, seed: int = 0) -> dict[str, np.ndarray]:
    """Random images of two classes, red and blue, with a bright square in a random place."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    x = rng.integers(0, 100, (count, side, side, 3))
    for i, k in enumerate(y):
        row, column = rng.integers(0, side - 8, 2)
        x[i, row : row + 8, column : column + 8, 2 * k] += 150
    return {"x": x.astype(np.uint8), "y": y}


def floats(x: np.ndarray) -> Tensor:
    return torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255


def onnx(path: Path, x: np.ndarray) -> np.ndarray:
    """Return the features that the ONNX file computes, in batches of 1 and of 5."""
    session = onnxruntime.InferenceSession(path)
    parts = [session.run(None, {"images": batch})[0] for batch in (x[:1], x[1:6])]
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run beside the data that it was trained on."""
    folder = tmp_path_factory.mktemp("wide")
    np.savez(folder / "data.npz", **pixels())
    np.savez(folder / "larger.npz", **pixels(24, side=48, seed=1))
    lines = (f"row {i},{'red' if i % 2 == 0 else 'blue'}\n" for i in range(16))
    (folder / "labels.csv").write_text("path,label\n" + "".join(lines))
    return pretrain(str(folder / "data.npz"), out=folder / "run", **SETTINGS).run


def test_features_of_a_run_are_those_of_its_own_readout(run: Path, command: Command) -> None:
    out = run.parent / "own.npz"
    data = run.parent / "larger.npz"
    found = command.json("embed", run, data, "--features", "wide", "--out", out)
    assert found["notes"][0].startswith("wide readout, fitted on 64 examples of data.npz: 128 ")
    assert found["dim"] > 128
    wide = widefield.load(run, features="wide")
    resized = open_encoder(run).open(str(data), quiet=True)
    assert resized.images.shape[1:3] == (SIDE, SIDE)
    with torch.no_grad():
        expected = wide(floats(resized.images)).numpy()
    np.testing.assert_allclose(np.load(out)["features"], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["run", "random", "weights"])
def test_every_command_takes_wide_features(
    name: str, run: Path, in_tmp: Path, command: Command
) -> None:
    """Each with the readout of a run, and with one that is fitted."""
    encoder = {"run": run, "random": "random", "weights": "w.safetensors@resnet10t"}[name]
    if name == "weights":
        resnet_file(Path("w.safetensors"))
    data, wide = run.parent / "data.npz", ("--features", "wide")
    pooled = 512 if name == "weights" else 128
    found = command.json("embed", encoder, data, *wide, "--out", "e.npz")
    assert (found["examples"], found["dim"] > pooled) == (64, True)
    assert any(note.startswith("wide readout, fitted on 64") for note in found["notes"])
    assert not any("has no readout" in note for note in found["notes"])
    if name != "weights":
        probed = command.json("probe", encoder, data, "--train-data", data, *wide)
        assert probed["features"] == "wide"
        assert any("wide readout" in note for note in probed["notes"])
        floors = probed["tasks"]["y"]["floor"]
        assert floors.keys() == {"pixels", "random", "dictionary", "majority"}
        assert command.json("audit", encoder, data, *wide)["tasks"].keys() == {"y"}
    if name != "random":
        labels = ("--labels", run.parent / "labels.csv", "--out", "p.csv")
        command.text("classify", encoder, data, *wide, *labels)
        assert len(Path("p.csv").read_text().splitlines()) == 65
        command.text("explore", encoder, data, *wide, "--out", "x.html")
        assert "wide readout" in Path("x.html").read_text()


@pytest.mark.parametrize("words", ["embed", "probe", "classify", "explore", "audit", "export"])
def test_help_of_every_command_names_wide(words: str, command: Command) -> None:
    assert "wide" in command.text(words, "--help").partition("--features")[2]


def test_an_onnx_file_gives_the_wide_features(run: Path, in_tmp: Path, command: Command) -> None:
    out = in_tmp / "wide.onnx"
    exported = command.json("export", run, "--features", "wide", "--out", out)
    x = pixels(6, seed=2)["x"]
    expected = widefield.embed(run, x, features="wide", quiet=True).features
    found = onnx(out, floats(x).numpy())
    assert exported["dim"] == found.shape[1] == expected.shape[1]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    wide = ("--features", "wide", "--preprocess")
    said = command.text("export", run, *wide, "--out", out, "--overwrite")
    assert f"resnet-tiny, {exported['dim']} features" in said
    np.testing.assert_allclose(onnx(out, x), found, atol=1e-4)


@pytest.mark.parametrize("kind", ["sounds", "windows"])
def test_sounds_and_windows_have_wide_features(kind: str, in_tmp: Path, command: Command) -> None:
    rng = np.random.default_rng(0)
    name = rng.integers(2, size=40)
    hertz = (300 + 500 * name)[:, None] * rng.uniform(0.9, 1.1, (40, 1))
    x = 0.3 * np.sin(2 * np.pi * hertz * np.arange(1000) / 4000)
    x += rng.normal(0, 0.02, x.shape)
    if kind == "sounds":
        data: Path = in_tmp / "data"
        for i, wave in enumerate(x):
            (data / str(name[i])).mkdir(parents=True, exist_ok=True)
            soundfile.write(data / str(name[i]) / f"{i:02}.wav", wave, 4000)
        settings = {"seconds": 0.25, "encoder": "resnet-tiny"}
    else:
        data, settings = in_tmp / "data.npz", {}
        np.savez(data, windows=x[:, None, :64], name=name)
    widefield.pretrain(str(data), out="run", epochs=1, batch_size=20, quiet=True, **settings)
    wide = ("--features", "wide")
    found = command.json("embed", "run", data, *wide, "--out", "e.npz")
    features = np.load("e.npz")["features"]
    assert features.shape == (40, found["dim"])
    command.text("explore", "run", data, *wide, "--out", "x.html")
    probed = command.json("probe", "run", data, "--train-data", data, "--no-floors", *wide)
    assert probed["features"] == "wide"
    assert command.json("export", "run", *wide, "--out", "w.onnx")["dim"] == found["dim"]
    images = open_encoder("run").open(str(data), quiet=True).images
    scale = 2.0**15 if kind == "sounds" else 1.0
    batch = np.ascontiguousarray(images.transpose(0, 3, 1, 2)[:6].astype(np.float32) / scale)
    np.testing.assert_allclose(onnx(Path("w.onnx"), batch), features[:6], atol=1e-4)


def test_a_model_folder_carries_the_readout_and_its_card_computes_the_features(
    run: Path, in_tmp: Path, command: Command
) -> None:
    said = command.text("export", run, "--out", "model")
    assert 'widefield.load("model", features="wide")' in said
    x = pixels(8, seed=3)["x"]
    expected = widefield.embed(run, x, features="wide", quiet=True).features
    card = Path("model/README.md").read_text()
    assert str(run.parent) not in card
    assert str(run.parent) not in Path("model", READOUT_FILE).read_bytes().decode("latin1")
    block = re.findall(r"```python\n(.*?)```", card.partition("## Wide features")[2], re.DOTALL)
    names: dict[str, Any] = {"images": floats(x)}
    with torch.no_grad():
        exec(block[0].replace("FOLDER", "model"), names)
    np.testing.assert_allclose(names["features"].numpy(), expected, atol=1e-4)
    # Images of another size become those that the readout was fitted on, as in the run.
    larger = run.parent / "larger.npz"
    of_run, of_folder = (
        command.json("embed", name, larger, "--features", "wide", "--out", f"{i}.npz")
        for i, name in enumerate((run, "model"))
    )
    assert (
        of_run["dim"]
        == of_folder["dim"]
        == command.json(*("export", run, "--features", "wide", "--out", "again"))["dim"]
    )
    np.testing.assert_allclose(
        np.load("0.npz")["features"], np.load("1.npz")["features"], atol=1e-4
    )
    with torch.no_grad():
        pooled = widefield.load("model")(floats(x)).numpy()
    np.testing.assert_allclose(pooled, widefield.embed(run, x, quiet=True).features, atol=1e-4)
    assert timm.create_model("local-dir:model", pretrained=True).num_features == 128


def test_a_model_folder_never_keeps_the_readout_of_another_encoder(
    run: Path, in_tmp: Path, command: Command
) -> None:
    command.text("export", run, "--out", "model")
    shutil.copytree(run, "bare")
    Path("bare", READOUT_FILE).unlink()
    assert "already there" in command.refused("export", "bare", "--out", "model")
    command.text("export", "bare", "--out", "model", "--overwrite")
    assert not Path("model", READOUT_FILE).exists()
    assert "Wide features" not in Path("model/README.md").read_text()
    with pytest.raises(ValueError, match="model has no readout"):
        widefield.load("model", features="wide")


@pytest.mark.usefixtures("in_tmp")
def test_what_has_no_wide_form_is_refused(run: Path, command: Command) -> None:
    wide = ("--features", "wide")
    message = command.refused("export", run, *wide, "--out", "x.safetensors")
    assert ".onnx file, or to a folder" in message
    resnet_file(Path("w.safetensors"))
    for out in ("x.onnx", "x"):
        message = command.refused("export", "w.safetensors@resnet10t", *wide, "--out", out)
        assert "w.safetensors@resnet10t has no readout for wide features" in message
    assert "pooled" in command.refused("export", run, "--features", "wider", "--out", "x.onnx")
    assert not [path for path in Path().iterdir() if path.name.startswith("x")]
    with pytest.raises(ValueError, match=r"features .*'projected'"):
        widefield.export(run, "x.onnx", features="projected")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["embed", "probe", "classify", "explore"])
def test_pixels_have_no_stages(name: str, run: Path, in_tmp: Path, command: Command) -> None:
    data = run.parent / "data.npz"
    more: dict[str, tuple[object, ...]] = {
        "embed": ("--out", "e.npz"),
        "probe": ("--train-data", data),
        "classify": ("--labels", run.parent / "labels.csv", "--out", "p.csv"),
        "explore": ("--out", "x.html"),
    }
    message = command.refused(name, "pixels", data, "--features", "wide", *more[name])
    assert "no stages are found in Pixels" in message
    assert "take pooled features" in message
    assert list(in_tmp.iterdir()) == []


def test_a_module_without_stages_is_refused() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, 8))
    with pytest.raises(ValueError, match="no stages are found in Sequential") as refused:
        widefield.embed(flat, pixels(8), features="wide", quiet=True)
    assert "\n" not in str(refused.value)


def test_the_module_given_is_not_changed() -> None:
    module = timm.create_model("resnet10t", num_classes=0).train()
    module.bn1.eval()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    modes = [part.training for part in module.modules()]
    found = widefield.embed(module, pixels(32), features="wide", quiet=True)
    assert found.features.shape[1] > 512
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert [part.training for part in module.modules()] == modes
    assert not any(part._forward_hooks for part in module.modules())


def fits(run: Path, x: np.ndarray) -> bool:
    """Return whether the mean in the readout is that of the encoder's features."""
    readout = load_readout(run)
    assert readout is not None
    with torch.no_grad():
        mean = widefield.load(run)(floats(x)).mean(0)
    return torch.allclose(readout.mean, mean, atol=1e-4)


def test_a_run_that_was_stopped_has_no_readout_until_it_is_resumed(
    in_tmp: Path, command: Command
) -> None:
    with pytest.raises(KeyboardInterrupt):
        pretrain(images(), out="run", on_step=signal_at(2), **SETTINGS)
    assert Path("run/encoder.safetensors").exists()
    assert not Path("run", READOUT_FILE).exists()
    np.savez("data.npz", **images())
    words = ("embed", "run", "data.npz", "--features", "wide", "--overwrite", "--out", "e.npz")
    notes = command.json(*words)["notes"]
    assert notes[0] == "run has no readout, as a finished run has: one is fitted here"
    assert notes[1].startswith("wide readout, fitted on 64 examples of data.npz")
    message = command.refused("export", "run", "--features", "wide", "--out", "e.onnx")
    assert "run has no readout for wide features, as a finished run has: resume" in message
    pretrain(images(), out="run", resume=True, quiet=True)
    assert Path("run", READOUT_FILE).exists()
    assert not any("has no readout" in note for note in command.json(*words)["notes"])


@pytest.mark.parametrize("step", ["save_encoder", "fit_on_dataset", "save_readout"])
def test_a_readout_never_stays_beside_a_newer_encoder(
    step: str, run: Path, in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resumed run is killed before it writes the encoder, or the readout."""
    data = pixels()
    shutil.copytree(run, "run")
    assert fits(Path("run"), data["x"])
    old = load_readout("run")
    assert old is not None

    def die(*_: object, **__: object) -> None:
        raise Killed

    owner, name = (run_file.PretrainRun, step) if step == "save_encoder" else (run_file, step)
    write = run_file.PretrainRun.save_encoder
    if step == "save_encoder":  # its folder is the run's, not that of a checkpoint
        monkeypatch.setattr(
            owner,
            name,
            lambda run, folder: die() if Path(folder).name == "run" else write(run, folder),
        )
    else:
        monkeypatch.setattr(owner, name, die)
    with pytest.raises(Killed):
        pretrain(data, out="run", resume=True, epochs=3, quiet=True)
    assert not Path("run", READOUT_FILE).exists()
    monkeypatch.undo()
    pretrain(data, out="run", resume=True, quiet=True)
    assert fits(Path("run"), data["x"])
    # The control: the old readout does not fit the new encoder.
    save_readout(old, "run")
    assert not fits(Path("run"), data["x"])


def test_the_readout_of_another_encoder_is_refused_in_one_line(
    run: Path, in_tmp: Path, command: Command
) -> None:
    data = run.parent / "data.npz"
    other = timm.create_model("resnet10t", num_classes=0)
    embedder = widefield.Embedder(other, features="wide").fit(pixels()["x"])
    shutil.copytree(run, "mixed")
    save_readout(embedder.extractor_.readout, "mixed")
    message = command.refused("embed", "mixed", data, "--features", "wide", "--out", "e.npz")
    assert "fit a readout of this encoder" in message


def test_an_embedder_is_cloned_and_pickled(run: Path) -> None:
    x = pixels(40, seed=4)["x"]
    for encoder in (run, "random", timm.create_model("resnet10t", num_classes=0)):
        embedder = widefield.Embedder(encoder, features="wide")
        assert clone(embedder).get_params()["features"] == "wide"
        found = embedder.fit(x).transform(x[:5])
        again = pickle.loads(pickle.dumps(embedder)).transform(x[:5])
        np.testing.assert_array_equal(found, again)
        assert found.dtype == np.float32
        # Images of another size become those that the readout was fitted on.
        assert embedder.transform(pixels(3, side=48)["x"]).shape == (3, found.shape[1])
    expected = widefield.embed(run, x[:5], features="wide", quiet=True).features
    of_run = widefield.Embedder(run, features="wide").fit(x).transform(x[:5])
    np.testing.assert_allclose(of_run, expected, atol=1e-5)


def test_classify_chooses_the_features_by_cross_validation(run: Path) -> None:
    x = pixels()["x"]
    known = {f"row {i}": str(i % 2) for i in range(16)}
    default = widefield.classify(run, x, labels=known)
    wide, pooled = (
        widefield.classify(run, x, labels=known, features=kind) for kind in ("wide", "pooled")
    )
    assert not np.array_equal(wide.values, pooled.values)
    (note,) = (note for note in default.notes if "features by cross-entropy" in note)
    errors = [float(x) for x in re.findall(r"([0-9.e+-]+) by", note)]
    better = wide if errors[0] <= errors[1] else pooled
    np.testing.assert_array_equal(default.values, better.values)
    assert any("wide readout" in note for note in default.notes)
    flat = nn.Flatten()  # has no stages
    by_default, by_name = (
        widefield.classify(flat, x, labels=known, features=kind) for kind in (None, "pooled")
    )
    np.testing.assert_array_equal(by_default.values, by_name.values)


def test_a_probe_has_both_readouts(run: Path, command: Command) -> None:
    data = run.parent / "data.npz"
    plain = ("probe", run, data, "--train-data", data, "--no-floors")
    found = command.json("probe", run, data, "--train-data", data)
    wide = command.json(*plain, "--features", "wide")
    task, of_wide = found["tasks"]["y"], wide["tasks"]["y"]
    assert task["wide"] == of_wide["accuracy"]
    assert of_wide["wide"] is None
    assert "wide features %" in command.text("probe", run, data, "--train-data", data)
    assert "wide features %" not in command.text(*plain)


def test_the_width_of_wide_features_is_given(run: Path, command: Command) -> None:
    data = run.parent / "data.npz"
    wide = ("--features", "wide")
    found = command.json("embed", run, data, *wide, "--dim", 200, "--out", run.parent / "200.npz")
    assert found["dim"] == 200
    assert load_readout(run).dim != 200  # that of the run is left as it is
    for words in (("--dim", 128), ("--dim", 9000)):
        said = command.refused("embed", run, data, *wide, *words, "--out", run.parent / "no.npz")
        assert f"dim is {words[1]}" in said
    said = command.refused("embed", run, data, "--dim", 200, "--out", run.parent / "no.npz")
    assert "dim 200 is for wide features: add --features wide" in said
