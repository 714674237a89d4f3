"""Encoders of other programs, by folder and by name, from adapting to an export."""

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import timm
import torch
from torch import Tensor

import made_vits as made
from commands import Command
from runs import images
from widefield.encoders import load_encoder

HF_CONFIG = {
    "num_attention_heads": made.HEADS,
    "num_hidden_layers": made.DEPTH,
    "hidden_act": "gelu",
    "image_size": made.SIDE,
    "layer_norm_eps": 1e-6,
}
FOLDERS = {
    "dinov2": (made.dinov2(4), made.hf_dinov2),
    "dinov3": (made.dinov3(), made.hf_dinov3),
}
TRAIN = ("--epochs", 1, "--batch-size", 8, "--device", "cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images, a few labels, and a folder of each model of transformers."""
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", **images(16))  # type: ignore[arg-type]
    rows = (f"row {i},{'ab'[i % 2]}" for i in range(8))
    Path("labels.csv").write_text("\n".join(["path,label", *rows]))
    for name, (state, spell) in FOLDERS.items():
        Path(name).mkdir()
        safetensors.torch.save_file(spell(state), f"{name}/model.safetensors")
        Path(name, "config.json").write_text(json.dumps({**HF_CONFIG, "model_type": name}))
    return tmp_path


def adapted(command: Command, name: str) -> tuple[Tensor, Tensor]:
    """Adapt the model of a folder; return normalized images' features before and after.

    Those before are its authors'.
    """
    command.text("pretrain", "data.npz", "--init", name, "--image-size", 28, "--out", "run", *TRAIN)
    with torch.no_grad():
        start, x = load_encoder("run/init").eval(), made.images()
        expected = made.features(FOLDERS[name][0], start.normalize(x), eps=1e-6)
        torch.testing.assert_close(start(x), expected, rtol=1e-4, atol=1e-5)
        after = load_encoder("run").eval()(x)
    assert not torch.allclose(after, expected, atol=1e-4)
    return x, after


def test_dinov2_is_adapted_explored_and_exported(command: Command, folder: Path) -> None:
    x, after = adapted(command, "dinov2")
    assert command.json("explore", "run", "data.npz", "--out", "page.html")["examples"] == 16
    command.text("export", "run", "--out", "net.onnx")
    (found,) = onnxruntime.InferenceSession("net.onnx").run(None, {"images": x.numpy()})
    np.testing.assert_allclose(found, after.numpy(), rtol=1e-3, atol=1e-4)


def test_dinov3_is_embedded_classified_and_adapted(command: Command, folder: Path) -> None:
    size = ("--image-size", 28)
    assert "16 x 48 features" in command.text(
        "embed", "dinov3", "data.npz", "--out", "r.npz", *size
    )
    labels = ("--labels", "labels.csv", "--out", "classes.csv", "--features", "pooled")
    assert command.json("classify", "dinov3", "data.npz", *labels, *size)["examples"] == 16
    adapted(command, "dinov3")


class Mirror(SimpleHTTPRequestHandler):
    """Files of a folder with the headers of the hub."""

    def end_headers(self) -> None:
        """Add what the client needs to keep the file."""
        self.send_header("ETag", '"1"')
        self.send_header("X-Repo-Commit", "0" * 40)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A mirror of the hub, from a folder on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Mirror, directory=str(tmp_path / "hub")))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_weights_come_from_a_mirror(
    command: Command, folder: Path, mirror: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet10t")
    file = folder / "hub" / "timm" / "resnet10t.c3_in1k" / "resolve" / "main" / "model.safetensors"
    file.parent.mkdir(parents=True)
    safetensors.torch.save_file(model.state_dict(), file)
    # What HF_ENDPOINT sets where a process begins.
    address = f"{mirror}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", mirror)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", address)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    words = ("pretrain", "data.npz", "--init", "timm:resnet10t", "--image-size", 32, "--out", "run")
    assert "add --download to fetch them" in command.refused(*words)
    command.text(*words, "--download", *TRAIN)
    lacking = command.refused(*words[:3], "timm:resnet18", "--download", "--out", "other")
    assert "the weights of timm:resnet18 cannot be fetched" in lacking
    kept = load_encoder("run/init").backbone.state_dict()
    assert torch.equal(kept["layer1.0.conv1.weight"], model.state_dict()["layer1.0.conv1.weight"])
