"""A network of one's own: through every command, and what is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import made_network
import widefield
from commands import Command
from runs import Killed, assert_same, die_at, images
from widefield.encoders import load_encoder, untrained_like
from widefield.inference.open_encoder import open_encoder

EXAMPLES = 24
RUN: dict[str, Any] = {"epochs": 1, "batch_size": 8, "quiet": True, "device": "cpu"}
DATA = images(EXAMPLES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the user's file, labeled images, and a run of both."""
    folder = tmp_path_factory.mktemp("own")
    shutil.copy(made_network.__file__, folder / "net.py")
    np.savez(folder / "data.npz", **DATA)  # type: ignore[arg-type]
    network = f"{folder}/net.py:build"
    widefield.pretrain(folder / "data.npz", out=folder / "run", encoder=network, **RUN)
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as working directory, in a process that was given no network."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("widefield.encoders.own._registered", {})
    return folder


def x(side: int = 16) -> Tensor:
    return torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(0))


def features(encoder: nn.Module) -> Tensor:
    with torch.no_grad():
        return encoder.eval()(x())


def test_it_goes_through_the_commands(command: Command, in_folder: Path) -> None:
    words = ("--epochs", 1, "--batch-size", 8, "--device", "cpu", "--out", "typed")
    text = command.text("pretrain", "data.npz", "--encoder", "net.py:build", *words)
    named = f"typed@{in_folder}/net.py:build"
    assert f"next: widefield embed {named} data.npz" in text
    explored = command.json("explore", named, "data.npz", "--out", "page.html")
    assert explored["examples"] == EXAMPLES
    audited = command.json("audit", named, "data.npz", "--out", "audit.html")
    assert audited["encoder"] == named
    Path("labels.csv").write_text(
        "\n".join(["path,label", *(f"row {i},{'ab'[i % 2]}" for i in range(8))])
    )
    table = ("--labels", "labels.csv", "--out", "classes.csv")
    assert command.json("classify", named, "data.npz", *table)["examples"] == EXAMPLES
    command.text("export", named, "--out", "net.onnx")
    (found,) = onnxruntime.InferenceSession("net.onnx").run(None, {"images": x().numpy()})
    expected = features(load_encoder("typed"))
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-4)


def test_a_run_never_executes_its_file_unasked(command: Command, in_folder: Path) -> None:
    line = command.refused("explore", "run", "data.npz", "--out", "no.html")
    assert f"is executed only if you name it: append @{in_folder}/net.py:build to the run" in line
    line = command.refused("pretrain", "data.npz", "--out", "run", "--resume")
    assert f"--encoder {in_folder}/net.py:build to pretrain" in line


def test_a_file_that_moved_or_changed(in_folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.py"
    moved.write_text(f"{(in_folder / 'net.py').read_text()}\n# edited\n")
    extractor = open_encoder(f"run@{moved}:build")
    assert "has changed since run was trained" in extractor.notes[0]
    assert extractor.encoder is not None
    same = open_encoder("run@net.py:build")
    assert same.notes == ()
    assert same.encoder is not None
    torch.testing.assert_close(features(extractor.encoder), features(same.encoder))


def test_a_resume_says_that_the_network_changed(
    in_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, run = tmp_path / "net.py", tmp_path / "run"
    shutil.copy("net.py", file)
    widefield.pretrain(DATA, out=run, encoder=f"{file}:build", **RUN)
    for epochs, edit in ((2, ""), (3, "# edited\n"), (4, "")):
        file.write_text(file.read_text() + edit)
        widefield.pretrain(DATA, out=run, encoder=f"{file}:build", resume=True, epochs=epochs)
        said = f"{file}:build has changed since the checkpoint" in capsys.readouterr().err
        assert said == bool(edit)


def test_a_size_that_a_network_states_does_not_bind_it(in_folder: Path) -> None:
    Path("sized.py").write_text(
        "from net import build\n\n\ndef sized():\n    network = build()\n"
        "    network.image_size = 224\n    return network\n"
    )
    for name in ("sized.py:sized", "net.py:build"):
        assert widefield.embed(name, DATA, quiet=True).features.shape == (EXAMPLES, 24)


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_weights_of_another_program_are_loaded_in_the_function(
    name: str, in_folder: Path, tmp_path: Path
) -> None:
    weights = {"layer.weight": torch.ones(2)}
    save = safetensors.torch.save_file if name.endswith(".safetensors") else torch.save
    save(weights, tmp_path / name)  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"in your function, by load_state_dict"):
        open_encoder(f"{tmp_path / name}@net.py:build")


def test_the_path_of_a_network_may_have_an_at(in_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a@b" / "net.py"
    file.parent.mkdir()
    shutil.copy("net.py", file)
    for name in (f"{file}:build", f"run@{file}:build"):
        assert features(open_encoder(name).build(DATA["x"])).shape == (3, 24)
    done = widefield.pretrain(DATA, out=tmp_path / "run", init=f"{file}:build", **RUN)
    assert features(done.encoder).shape == (3, 24)


def test_a_run_of_it_is_a_start(in_folder: Path, tmp_path: Path) -> None:
    done = widefield.pretrain(DATA, out=tmp_path / "run", init="run@net.py:build", **RUN)
    torch.testing.assert_close(features(load_encoder(done.run / "init")), features_of_run())
    assert f"init: {in_folder}/run@{in_folder}/net.py:build" in (done.run / "run.yaml").read_text()


def features_of_run() -> Tensor:
    return features(open_encoder("run@net.py:build").encoder)  # type: ignore[arg-type]


def test_a_module_is_trained_resumed_and_reopened(in_folder: Path, tmp_path: Path) -> None:
    module = made_network.Network(widths=(8, 12))
    before = {key: value.clone() for key, value in module.state_dict().items()}
    settings: dict[str, Any] = {**RUN, "epochs": 2}
    widefield.pretrain(DATA, out=tmp_path / "whole", encoder=module, **settings)
    with pytest.raises(Killed):
        widefield.pretrain(
            DATA,
            out=tmp_path / "killed",
            encoder=module,
            on_step=die_at(4),
            checkpoint_every=1,
            **settings,
        )
    widefield.pretrain(DATA, out=tmp_path / "killed", encoder=module, resume=True, quiet=True)
    assert_same(tmp_path / "whole", tmp_path / "killed")
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    reopened = widefield.load(tmp_path / "whole", network=made_network.Network(widths=(8, 12)))
    assert features(reopened).shape == (3, 12)


def test_a_module_of_any_architecture_is_a_start(in_folder: Path, tmp_path: Path) -> None:
    module = made_network.Network()
    done = widefield.pretrain(DATA, out=tmp_path / "run", init=module, **RUN)
    torch.testing.assert_close(features(load_encoder(done.run / "init")), features(module))
    assert not torch.allclose(features(done.encoder), features(module))


def test_its_untrained_twin_has_other_weights(in_folder: Path) -> None:
    torch.save(made_network.build().state_dict(), "weights.pt")
    Path("loads.py").write_text(
        "import torch\nfrom net import build\n\n\ndef trained():\n    network = build()\n"
        "    network.load_state_dict(torch.load('weights.pt'))\n    return network\n"
    )
    for name in ("net.py:build", "loads.py:trained"):
        encoder = open_encoder(name).encoder
        assert encoder is not None
        assert not torch.allclose(features(untrained_like(encoder, seed=1)), features(encoder))


BROKEN = """
import torch
from torch import nn
class Map(nn.Module):
    def forward(self, x): return x
class Pair(nn.Module):
    def forward(self, x): return x, x
class Fails(nn.Module):
    def forward(self, x): return x @ x.new_zeros(5, 5)
def no_module(): return 3
def raises(): raise KeyError("weights")
"""


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("none.py:build", "no file none.py with the function build"),
        ("broken.py:nothing", "broken.py has no function nothing"),
        ("broken.py:no_module", "returns int: return a torch.nn.Module"),
        ("broken.py:raises", "broken.py:raises() fails: KeyError: 'weights'"),
        ("broken.py:Map", "returns a tensor [2, 3, 16, 16] for images [2, 3, 16, 16]: return"),
        ("broken.py:Pair", "returns tuple for images"),
        ("broken.py:Fails", "fails for images [2, 3, 16, 16]: RuntimeError"),
        ("syntax.py:build", "syntax.py fails when it is executed: SyntaxError"),
    ],
)
def test_what_is_refused(
    command: Command, in_folder: Path, network: str, message: str, tmp_path: Path
) -> None:
    Path("broken.py").write_text(BROKEN)
    Path("syntax.py").write_text("def build(:")
    line = command.refused("pretrain", "data.npz", "--encoder", network, "--out", tmp_path / "no")
    assert message in line
    assert not (tmp_path / "no").exists()
