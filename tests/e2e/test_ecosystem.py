"""What a run leaves for other tools: a model folder, an index of embeddings, DLPack."""

import json
import sys
from pathlib import Path

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
import timm
import torch

import widefield
from commands import Command
from made_audit import audited
from widefield.workflows.model_card import model_card


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose encoder timm can build."""
    out = tmp_path_factory.mktemp("ecosystem") / "run"
    settings = {"epochs": 1, "max_examples": 64, "batch_size": 32, "stem": "native", "quiet": True}
    settings["encoder"] = "resnet-tiny"
    return widefield.pretrain("photos+digits", out=out, **settings).run


@pytest.mark.usefixtures("in_tmp")
def test_a_model_folder_is_loaded_by_timm(run: Path, command: Command) -> None:
    said = command.text("export", run, "--out", "model")
    assert 'timm.create_model("local-dir:model", pretrained=True)' in said
    x = torch.rand(4, 3, 32, 32)
    model = timm.create_model("local-dir:model", pretrained=True).eval()
    data = timm.data.resolve_model_data_config(model)
    mean, std = (torch.tensor(data[part]).view(1, -1, 1, 1) for part in ("mean", "std"))
    assert torch.allclose(model((x - mean) / std), widefield.load(run)(x), atol=1e-5)
    card = Path("model/README.md").read_text()
    for words in ("library_name: timm", "- trained on: `photos", "- examples: 64"):
        assert words in card
    assert str(run) not in card
    assert "What it learned" not in card
    assert "already there" in command.refused("export", run, "--out", "model")
    command.text("export", run, "--out", "model", "--overwrite")


@pytest.mark.usefixtures("in_tmp")
def test_the_card_says_what_an_audit_found(run: Path, command: Command) -> None:
    made = audited(digit=0.1)
    Path("audit.json").write_text(json.dumps(made.to_json()))
    command.text("export", run, "--out", "model", "--audit", "audit.json")
    card = Path("model/README.md").read_text()
    assert f"- `{made.tasks['digit'].line()}`" in card
    assert "not learned" in card.partition("## What it learned")[2]
    message = command.refused("export", run, "--out", "e.onnx", "--audit", "audit.json")
    assert "no model card" in message


def test_the_card_keeps_every_space_and_no_control_character(run: Path) -> None:
    card = model_card(widefield.load(run), run, ["photos of 9.41\u202fPM: `seen`\x1b[2J"])
    assert "- `photos of 9.41\u202fPM: 'seen'[2J`" in card


@pytest.mark.usefixtures("in_tmp")
def test_a_folder_of_embeddings_is_searched_by_faiss(run: Path, command: Command) -> None:
    command.text("embed", run, "photos:test", "--max-examples", "40", "--out", "found")
    embedding = widefield.embed(run, "photos:test", max_examples=40, quiet=True)
    index = faiss.read_index("found/index.faiss")
    unit = embedding.features / np.linalg.norm(embedding.features, axis=1, keepdims=True)
    cosine, row = index.search(unit, 2)
    assert index.ntotal == 40
    assert cosine[:, 0] == pytest.approx(np.ones(40), abs=1e-5)
    best = (unit @ unit.T - 2 * np.eye(40)).max(1)
    assert np.sort(cosine, axis=1)[:, 0] == pytest.approx(best, abs=1e-5)
    rows = pq.read_table("found/rows.parquet").to_pylist()
    assert [line["path"] for line in rows] == embedding.paths
    assert row.shape == (40, 2)
    assert "already there" in command.refused("embed", run, "photos:test", "--out", "found")


@pytest.mark.usefixtures("in_tmp")
def test_without_faiss_one_line_names_the_extra(
    run: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    message = command.refused("embed", run, "photos:test", "--out", "found")
    assert "pip install 'widefield[faiss]'" in message
    assert not Path("found").exists()
    command.text("embed", run, "photos:test", "--max-examples", "4", "--out", "found.npz")


def test_an_embedding_is_a_tensor_without_a_copy() -> None:
    embedding = widefield.embed("random", "photos:test", max_examples=4, quiet=True)
    h = torch.from_dlpack(embedding)
    assert h.data_ptr() == embedding.features.ctypes.data
    assert np.array_equal(np.from_dlpack(embedding), embedding.features)
