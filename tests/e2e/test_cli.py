"""Every command as a user types it, in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

TRAIN = "--limit 64 --batch-size 16 --image-size 16 --epochs 2 --encoder resnet-tiny"
TRAIN += " --projector-width 32 --projector-dim 16"


def widefield(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "widefield", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def good(*words: object, cwd: Path | None = None) -> Any:
    done = widefield(*words, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(*words: object, cwd: Path | None = None) -> str:
    """One line on stderr, exit code 2, nothing on stdout."""
    done = widefield(*words, cwd=cwd)
    assert done.returncode == 2, (done.returncode, done.stderr)
    lines = [line for line in done.stderr.splitlines() if line.startswith("widefield: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return lines[0]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    found = good("pretrain", "photos+digits", "--out", folder, *TRAIN.split())
    assert found["run"] == str(folder)
    assert found["steps"] == 8
    assert found["images_per_second"] > 0
    assert 0 <= found["data_wait"] <= 1
    assert found["health"]["verdict"] in ("healthy", "collapsing", "collapsed")
    assert found["finished"] is True
    return folder


def test_run_folder_holds_what_is_promised(run: Path) -> None:
    names = {p.name for p in run.iterdir()}
    assert names >= {
        "run.yaml",
        "metrics.csv",
        "tensorboard",
        "checkpoints",
        "encoder.safetensors",
        "encoder.json",
        "manifest.parquet",
    }
    manifest = pq.read_table(run / "manifest.parquet")
    assert manifest["index"].to_pylist() == list(range(64))
    assert {"path", "digest", "skipped", "class", "digits"} <= set(manifest.column_names)


def test_probe(run: Path) -> None:
    found = good("probe", run, "--limit", 160)
    assert found["scored_on"] == "photos:test+digits"
    assert found["train_test_overlap"] == 0
    assert found["tasks"].keys() == {"class", "digits"}
    for task in found["tasks"].values():
        assert 0 <= task["low"] <= task["accuracy"] <= task["high"] <= 1
        assert 0 <= task["knn"] <= 1
        assert task["floor"].keys() == {"pixels", "random"}
    table = widefield("probe", run, "photos:test+digits", "--task", "class", "--limit", 160)
    assert table.returncode == 0
    assert "\n  class " in table.stdout
    assert "\n  digits " not in table.stdout


def test_probe_says_when_the_images_were_trained_on(run: Path) -> None:
    found = good("probe", run, "photos+digits", "--limit", 160, "--task", "class")
    assert found["train_test_overlap"] > 0
    said = widefield("probe", run, "photos+digits", "--limit", 160, "--task", "class").stdout
    overlap = found["train_test_overlap"]
    assert f"note: {overlap} of the scored images were in the encoder's training data" in said


@pytest.mark.parametrize("encoder", ["random", "pixels", "timm:resnet18"])
def test_probe_of_an_encoder_that_is_no_run(encoder: str) -> None:
    words = ("--fit-on", "photos:train", "--limit", 64)
    if encoder == "timm:resnet18":
        words = ("--fit-on", "photos:test", "--limit", 64)
    found = good("probe", encoder, "photos:test", *words)
    assert found["tasks"]["class"]["accuracy"] > 1 / 16


def test_embed_npz_and_parquet_agree(run: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "e.npz", tmp_path / "e.parquet"
    found = good("embed", run, "photos:test+digits", "--limit", 48, "--out", first)
    assert found == {
        "out": str(first),
        "examples": 48,
        "dim": 128,
        "tasks": ["class", "digits"],
    }
    good("embed", run, "photos:test+digits", "--limit", 48, "--out", second)
    arrays, table = np.load(first), pq.read_table(second)
    assert arrays["features"].shape == (48, 128)
    assert arrays["features"].dtype == np.float32
    assert arrays["index"].tolist() == list(range(48)) == table["index"].to_pylist()
    assert arrays["path"].tolist() == table["path"].to_pylist()
    np.testing.assert_array_equal(np.stack(table["features"].to_numpy()), arrays["features"])
    for task in ("class", "digits"):
        names = arrays[f"classes_{task}"][arrays[f"label_{task}"]]
        assert names.tolist() == table[f"label_{task}"].to_pylist()


def test_export_is_what_the_readme_says(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.safetensors"
    done = widefield("export", run, "--out", out)
    assert done.returncode == 0, done.stderr
    code = done.stdout.split("load it with timm alone:")[1]
    check = "import torch; print(float(model.eval()(torch.zeros(1, 3, 16, 16)).sum()))"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{code}\n{check}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    assert "widefield" not in code
    assert np.isfinite(float(loaded.stdout))
    onnx = tmp_path / "mine.onnx"
    assert good("export", run, "--out", onnx)["dim"] == 128
    assert onnx.stat().st_size > 1000


def test_help_imports_nothing_heavy() -> None:
    assert widefield("--help").returncode == 0
    code = "import sys, widefield.cli; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == ["False", "False"]


def test_every_command_has_help() -> None:
    for command in (
        "demo",
        "plan",
        "pretrain",
        "probe",
        "audit",
        "embed",
        "export",
        "lab",
        "bench",
    ):
        done = widefield(command, "--help")
        assert done.returncode == 0
        assert "--json" in done.stdout


def test_plan() -> None:
    found = good("plan", "photos+digits", *TRAIN.split(), "--row-store", "disk")
    assert found["head_bytes"] == 64 * 16 * 4
    assert found["parts"]["moments"] == {"bytes": 2 * found["head_bytes"], "place": "disk"}
    assert found["host_bytes"] > found["device_bytes"] > 0
    assert found["epoch_seconds"] > 0
    said = widefield("plan", "photos", *TRAIN.split()).stdout
    assert "\n  moments " in said
    assert "s an epoch of 4 steps" in said


def test_lab(tmp_path: Path) -> None:
    figure = tmp_path / "angle.svg"
    words = ["downstream-angle", "--scale", "tiny", "--seed", 1, "--out", figure]
    found = good("lab", *words)
    assert found["name"] == "downstream-angle"
    assert found["verdict"] == "holds"
    assert found["measured"].keys() == found["predicted"].keys()
    assert figure.read_text().startswith("<?xml")
    assert len(good("lab")) == 12


def paint(folder: Path, count: int, size: int = 16) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for i in range(count):
        pixels = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02}.png")


def test_own_folder_with_a_bad_file(tmp_path: Path) -> None:
    """A corrupt file is skipped, counted, named; the run goes on."""
    paint(tmp_path / "photos of mine", 40)
    broken = tmp_path / "photos of mine" / "07.png"
    broken.write_bytes(broken.read_bytes()[:80])
    words = ["--batch-size", 16, "--epochs", 1, "--encoder", "resnet-tiny"]
    done = widefield("pretrain", "photos of mine", "--out", "run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 " in done.stderr
    assert "07.png" in done.stderr
    manifest = pq.read_table(tmp_path / "run" / "manifest.parquet").to_pylist()
    assert [row["path"] for row in manifest if row["skipped"]] == ["07.png"]
    assert sum(row["index"] is not None for row in manifest) == 39


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrain", "fotos", "--out", "r"], "did you mean 'photos'"),
        (["pretrain", "photos+digit", "--out", "r"], "digits"),
        (["pretrain", "photos", "--out", "r", "--method", "sdiet"], "did you mean 's-diet'"),
        (["pretrain", "photos", "--out", "r", "--views", "expart"], "did you mean"),
        (["pretrain", "photos", "--out", "r", "--views", "random-mask"], "two halves of an image"),
        (["pretrain", "photos", "--out", "r", "--views", "mask-viewmaker"], "there is none in"),
        (["pretrain", "photos", "--out", "r", "--encoder", "resnet81"], "did you mean"),
        (["pretrain", "photos", "--out", "r", "--recipe", "papr"], "did you mean 'paper'"),
        (["pretrain", "photos", "--out", "r", "--epochs", "many"], "--epochs"),
        (["pretrain", "photos", "--out", "r", "--epochs", "-1"], "epochs must be above 0"),
        (["pretrain", "photos", "--out", "r", "--limit", "9", "--batch-size", "10"], "batch_size"),
        (["pretrain", "photos", "--out", "r", "--device", "cuda"], "use --device cpu"),
        (["pretrain", "photos", "--out", "r", "--resume"], "is not a run"),
        (["pretrain", "photos", "--out", "taken"], "not an empty folder"),
        (["pretrain", "empty", "--out", "r"], "empty"),
        (["pretrain", "words", "--out", "r"], "words"),
        (["pretrain", "keys.npz", "--out", "r"], "x"),
        (["pretrain", "nan.npz", "--out", "r"], "x"),
        (["pretrain", "text.npz", "--out", "r"], "x"),
        (["pretrain", "half.npz", "--out", "r"], "half.npz"),
        (
            ["pretrain", "mine", "--out", "r", "--method", "supervised", "--batch-size", "10"],
            "supervised needs labels",
        ),
        (["pretrain", "photos"], "--out"),
        (["probe", "nowhere", "photos"], "no encoder 'nowhere'"),
        (["probe", "random", "photos:test"], "--fit-on"),
        (["probe", "random", "mine", "--fit-on", "mine"], "share no labelled task"),
        (["probe", "random", "photos:test", "--fit-on", "photos", "--task", "x"], "no task 'x'"),
        (["embed", "random", "photos:test", "--out", "e.csv"], ".npz or .parquet"),
        (["embed", "random", "photos:test", "--out", "taken.npz"], "--overwrite"),
        (["export", "nowhere", "--out", "e.safetensors"], "nowhere"),
        (["export", "nowhere", "--out", "e.pt"], ".safetensors or .onnx"),
        (["lab", "nose-helps"], "did you mean 'noise-helps'"),
        (["lab", "noise-helps", "--learning", "1"], "unknown parameter of noise-helps 'learning'"),
        (["bench", "stop"], "did you mean 'step'"),
        (["bench", "step", "--methods", "byoll"], "did you mean 'byol'"),
        (["bench", "views", "--batch-size", "0"], "batch_size must be 1 or more, got 0"),
        (["bench", "probe", "--rows", "9"], "unknown option of bench probe 'rows'"),
        (["demo", "--out", "taken"], "not empty"),
        (["pretrian"], "pretrain"),
    ],
    ids=lambda v: "-".join(v)[:50] if isinstance(v, list) else "",
)
def test_bad_input_gets_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "taken.npz").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").write_text("a")
    paint(tmp_path / "mine", 20)
    np.savez(tmp_path / "keys.npz", images_of_mine=np.zeros((20, 8, 8, 3), np.uint8))
    np.savez(tmp_path / "nan.npz", x=np.full((20, 8, 8, 3), np.nan, np.float32))
    np.savez(tmp_path / "text.npz", x=np.array(["a"] * 20))
    (tmp_path / "half.npz").write_bytes((tmp_path / "keys.npz").read_bytes()[:300])
    assert message in refused(*words, cwd=tmp_path)
    assert (tmp_path / "taken" / "mine.txt").read_text() == "mine"
    assert (tmp_path / "taken.npz").read_text() == "mine"
    assert not (tmp_path / "r").exists()


def test_debug_shows_where_it_came_from() -> None:
    done = widefield("pretrain", "fotos", "--out", "r", "--debug")
    assert "Traceback" in done.stderr
