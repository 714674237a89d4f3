"""Every command as a user types it: one run in a process of its own, all else called here."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml

from commands import Command
from forked import ForkedCommand
from runs import images, paint
from widefield.version import __version__
from widefield_labs.lab import at_least, close

TRAIN = "--max-examples 64 --batch-size 16 --image-size 16 --epochs 2 --encoder resnet-tiny"
TRAIN += " --projector-width 32 --projector-dim 16"


def python(*words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ("photos+digits", "--out", folder, *TRAIN.split(), "--json")
    done = ForkedCommand("pretrain", *words)
    out, err = done.communicate()
    assert done.returncode == 0, err
    found = json.loads(out)
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


def test_probe(run: Path, command: Command) -> None:
    found = command.json("probe", run, "--max-examples", 96, "--task", "class")
    assert found["scored_on"] == "photos:test+digits"
    assert found["train_test_overlap"] == 0
    assert found["tasks"].keys() == {"class"}
    for task in found["tasks"].values():
        assert 0 <= task["low"] <= task["accuracy"] <= task["high"] <= 1
        assert 0 <= task["knn"] <= 1
        assert task["floor"].keys() == {"pixels", "random", "dictionary", "majority"}


def test_probe_says_when_the_images_were_trained_on(run: Path, command: Command) -> None:
    words = ("probe", run, "photos+digits", "--max-examples", 160, "--no-floors")
    found = command.json(*words)
    assert found["train_test_overlap"] > 0
    assert found["tasks"].keys() == {"class", "digits"}
    table = command.text(*words, "--task", "class")
    assert "\n  class " in table
    assert "\n  digits " not in table
    overlap = found["train_test_overlap"]
    note = f"{overlap} of the scored images were in the encoder's training data"
    assert note in table


@pytest.mark.parametrize("encoder", ["random", "pixels", "timm:resnet10t"])
def test_probe_of_an_encoder_that_is_no_run(encoder: str, command: Command, in_tmp: Path) -> None:
    """Red and blue images are told apart by it."""
    np.savez("train.npz", **images(40))
    found = command.json(
        "probe", encoder, "train.npz", "--train-data", "train.npz", "--max-examples", 20
    )
    assert found["tasks"]["y"]["accuracy"] > 0.8


def test_embed_npz_and_parquet_agree(run: Path, tmp_path: Path, command: Command) -> None:
    first, second = tmp_path / "e.npz", tmp_path / "e.parquet"
    found = command.json("embed", run, "photos:test+digits", "--max-examples", 48, "--out", first)
    assert found == {
        "out": str(first),
        "examples": 48,
        "dim": 128,
        "tasks": ["class", "digits"],
        "notes": [],
    }
    command.json("embed", run, "photos:test+digits", "--max-examples", 48, "--out", second)
    with np.load(first) as saved:
        arrays = dict(saved)
    table = pq.read_table(second)
    assert arrays["features"].shape == (48, 128)
    assert arrays["features"].dtype == np.float32
    assert arrays["index"].tolist() == list(range(48)) == table["index"].to_pylist()
    assert arrays["path"].tolist() == table["path"].to_pylist()
    np.testing.assert_array_equal(np.stack(table["features"].to_numpy()), arrays["features"])
    for task in ("class", "digits"):
        names = arrays[f"classes_{task}"][arrays[f"label_{task}"]]
        assert names.tolist() == table[f"label_{task}"].to_pylist()


def test_export_is_what_the_readme_says(run: Path, in_tmp: Path, command: Command) -> None:
    (in_tmp / 'my "best"').mkdir()
    code = command.text("export", run, "--out", 'my "best"/mine.safetensors')
    code = code.split("load it with timm alone:")[1]
    assert "widefield" not in code
    check = "import torch; out = model.eval()(torch.zeros(1, 3, 16, 16))"
    names: dict[str, Any] = {}
    exec(f"{code}\n{check}", names)
    assert names["out"].isfinite().all()
    assert command.json("export", run, "--out", "mine.onnx")["dim"] == 128
    assert Path("mine.onnx").stat().st_size > 1000


HEAVY = {"torch", "timm", "lightning", "matplotlib", "sklearn", "skimage"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("probe --help", 0),
        ("audit --help", 0),
        ("classify -h", 0),
        ("pretrain --help", 0),
        ("plan --recipe feature-dropout --views crop+viewmaker --init run --help", 0),
        ("pretrain fotos --out r", 2),
        ("pretrain photos+digit --out r", 2),
        ("pretrain photos --out r --epochs 0", 2),
        ("pretrain photos --out r --method simcrl", 2),
        ("pretrain photos --out r --views crp", 2),
        ("pretrain photos --out r --resume", 2),
        ("pretrain photos --out full", 2),
        ("plan photos --config missing.yaml", 2),
        ("probe missing photos", 2),
        ("probe random fotos", 2),
        ("classify random photos --labels missing.csv --out p.csv", 2),
        ("explore random photos --out full/old.html", 2),
        ("export missing --out e.onnx", 2),
    ],
)
def test_what_needs_no_torch_is_answered_at_once(words: str, code: int, tmp_path: Path) -> None:
    """Help, and inputs that are refused: torch alone takes seconds to import."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "old.html").touch()
    program = f"""
import sys
from widefield.cli import main
try:
    main()
finally:
    print(*({HEAVY} & sys.modules.keys()), file=sys.stderr)
"""
    done = python("-c", program, *words.split(), cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1] == ""


@pytest.mark.parametrize("words", ["pretrain", "plan --method simclr", "pretrain --views=noise"])
def test_help_shows_the_options_of_the_chosen_method_and_views(
    words: str, command: Command
) -> None:
    text = command.text(*words.split(), "--help")
    assert ("--head-storage" in text) == ("simclr" not in words)
    assert ("--temperature" in text) == ("simclr" in words)
    assert ("--noise-std" in text) == ("noise" in words)
    assert "--batch-size" in text


def test_plan(command: Command) -> None:
    found = command.json("plan", "photos+digits", *TRAIN.split(), "--head-storage", "disk")
    assert found["head_bytes"] == 64 * 16 * 4
    assert found["parts"]["moments"] == {"bytes": 2 * found["head_bytes"], "place": "disk"}
    assert found["host_bytes"] > found["device_bytes"] > 0
    assert found["epoch_seconds"] > 0
    text = command.text("plan", "photos", *TRAIN.split())
    assert "\n  moments " in text
    assert "s an epoch of 4 steps" in text


def test_lab(tmp_path: Path, command: Command) -> None:
    figure = tmp_path / "angle.svg"
    words = ["downstream-angle", "--scale", "tiny", "--seed", 1, "--out", figure]
    found = command.json("lab", *words)
    assert found["name"] == "downstream-angle"
    assert found["verdict"] == "holds"
    assert found["measured"].keys() == found["predicted"].keys()
    assert figure.read_text().startswith("<?xml")
    assert len(command.json("lab")) == 12


def test_a_lab_that_fails_says_so_to_the_shell(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control is the same lab with its own check."""
    from widefield_labs import LABS  # the labs of now: a test may have imported them anew

    lab, words = LABS["downstream-angle"], ("lab", "downstream-angle", "--scale", "tiny")
    assert command(*words)[0] == 0
    checks = (at_least("never", 0.0, 1.0), close("always", 0.33, 1 / 3, 0.01))
    never = replace(lab, check=lambda arrays: checks)
    monkeypatch.setitem(LABS, "downstream-angle", never)
    for more in ((), ("--json",)):
        code, out, err = command(*words, *more)
        assert (code, err) == (1, "")
        assert "fails" in out
        if not more:
            assert "at least 1 " in out
            assert "0.3333 ± 0.01 " in out


def test_own_folder_with_a_bad_file(in_tmp: Path, command: Command) -> None:
    """A corrupt file is skipped, counted, named; the run goes on."""
    paint(Path("photos of mine"), images(40)["x"])
    broken = Path("photos of mine/007.png")
    broken.write_bytes(broken.read_bytes()[:80])
    words = ["--batch-size", 16, "--epochs", 1, "--encoder", "resnet-tiny"]
    code, _, err = command("pretrain", "photos of mine", "--out", "run", *words)
    assert code == 0
    assert "1 " in err
    assert "007.png" in err
    manifest = pq.read_table("run/manifest.parquet").to_pylist()
    assert [row["path"] for row in manifest if row["skipped"]] == ["007.png"]
    assert sum(row["index"] is not None for row in manifest) == 39


BAD = {
    "pretrain fotos --out r": "did you mean 'photos'",
    "pretrain photos+digit --out r": "digits",
    "pretrain photos --out r --method sdiet": "did you mean 's-diet'",
    "pretrain photos --out r --views expart": "did you mean",
    "pretrain photos --out r --method diet --views random-mask": "two halves of an image",
    "pretrain photos --out r --views mask-viewmaker": "there is none in",
    "pretrain photos --out r --encoder resnet81": "did you mean",
    "pretrain photos --out r --recipe papr": "s-diet-paper",
    "pretrain photos --out r --recipe s-diet-paper --method simclr": "the recipe s-diet-paper has "
    "no settings for simclr: it is for s-diet and diet",
    "pretrain photos --out r --method simclr --head-storage disk": "--head-storage is not a "
    "setting of simclr with views expert: it is one of view-contrast, ",
    "plan photos --temperature 0.1": "temperature is not a setting of row-contrast with views "
    "expert: it is one of simclr, ",
    "pretrain photos --out r --noise-std 1": "noise and noise:object",
    "pretrain photos --out r --queue-sise 1": "--queue-sise",
    "pretrain photos --method simcrl --help": "did you mean 'simclr'",
    "pretrain photos --out r --epochs many": "--epochs",
    "pretrain photos --out r --epochs -1": "epochs must be a whole number of at least 1",
    "pretrain photos --out r --epochs=1.5": "'1.5' is not a whole number",
    "pretrain photos --out r --max-examples 9 --batch-size 10": "--batch-size",
    "pretrain photos --out r --device cuda": "use --device cpu",
    "pretrain photos --out r --resume": "is not a run",
    "pretrain photos --out taken": "not an empty folder",
    "pretrain empty --out r": "empty",
    "pretrain words --out r": "words",
    "pretrain keys.npz --out r": "x",
    "pretrain nan.npz --out r": "x",
    "pretrain text.npz --out r": "x",
    "pretrain half.npz --out r": "half.npz",
    "pretrain mine --out r --method supervised --batch-size 10": "supervised needs labels",
    "pretrain photos": "--out",
    "probe nowhere photos": "no encoder 'nowhere'",
    "probe random photos:test": "--train-data",
    "probe random mine --train-data mine": "share no labeled task",
    "probe random photos:test --train-data photos --task x": "no task 'x'",
    "embed random photos:test --out e.csv": ".npz or .parquet",
    "embed random photos:test --out taken.npz": "--overwrite",
    "export nowhere --out e.safetensors": "nowhere",
    "export random --out e.pt": ".safetensors or .onnx",
    "lab nose-helps": "did you mean 'noise-helps'",
    "lab nosuch": "unknown lab 'nosuch': known: noise-helps, downstream-angle, ",
    "lab --scale tiny --out z.svg": "name one, or leave out --scale, --out",
    "lab --noise 3": "without a name no lab runs: name one, or leave out --noise",
    "lab --parameters": "name one, or leave out --parameters",
    "lab multistep --parameters --foo-bar 3 --out z.svg": "with --parameters no lab runs: leave it "
    "out, or leave out --out, --foo-bar",
    "lab noise-helps --learning 1": "unknown parameter of noise-helps 'learning'",
    "demo --out taken": "not empty",
    "demo --windows": "--windows",
    "recipe": "Unknown command",
    "audit": "ENCODER",
    "pretrain photos --out r --no-drop-last": "--no-drop-last is not an option of the command "
    "line: set drop_last in a --config file",
    "plan photos --head-moments=bf16": "set head_moments in a --config file or in Py",
    "pretrian": "pretrain",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_gets_one_line(in_tmp: Path, command: Command, words: str) -> None:
    Path("taken").mkdir()
    Path("taken/mine.txt").write_text("mine")
    Path("taken.npz").write_text("mine")
    Path("empty").mkdir()
    Path("words").mkdir()
    Path("words/a.txt").write_text("a")
    paint(Path("mine"), images(20)["x"])
    np.savez("keys.npz", images_of_mine=np.zeros((20, 8, 8, 3), np.uint8))
    np.savez("nan.npz", x=np.full((20, 8, 8, 3), np.nan, np.float32))
    np.savez("text.npz", x=np.array(["a"] * 20))
    Path("half.npz").write_bytes(Path("keys.npz").read_bytes()[:300])
    assert BAD[words] in command.refused(*words.split())
    assert Path("taken/mine.txt").read_text() == "mine"
    assert Path("taken.npz").read_text() == "mine"
    assert not Path("r").exists()


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        ("seed: 0", "seed: 0\n  sede: 1", "'sede' is unknown"),
        ("    layers: 2", "    layer: 2", "'layer' is unknown"),
        ("  checkpoint_every: .*\n", "", "'checkpoint_every' is missing"),
        ("name: view-contrast", "name: viewcontrast", "did you mean 'view-contrast'"),
        ("name: moderate", "name: moderat", "did you mean 'moderate'"),
        ("    init: .*", "    init: zero", "init must be embedding or random, got 'zero'"),
        ("format: 3", "format: 2", "has format 2 and this version of widefield reads format 3"),
        ("format: 3", "format: 4", "has format 4 and this version of widefield reads format 3"),
        (
            "format: 3\n",
            "",
            f"go back to the version that wrote it, pip install widefield=={__version__}",
        ),
        ("recipe:", "recip:", "describes no run: data or recipe is missing"),
        ("recipe:(.|\n)*machine:", "recipe: 3\nmachine:", "has an invalid recipe"),
        ("format: 3", "format: [", "run.yaml cannot be read as YAML"),
    ],
)
def test_a_run_yaml_that_does_not_fit_gets_one_line(
    run: Path, in_tmp: Path, command: Command, pattern: str, replacement: str, message: str
) -> None:
    copy = Path(shutil.copytree(run, "copy"))
    text, count = re.subn(pattern, replacement, (run / "run.yaml").read_text(), count=1)
    assert count == 1
    (copy / "run.yaml").write_text(text)
    line = command.refused("pretrain", "photos+digits", "--out", copy, "--resume")
    assert message in line
    assert (copy / "run.yaml").read_text() == text


def test_epochs_below_those_that_have_begun_get_one_line(
    run: Path, in_tmp: Path, command: Command
) -> None:
    copy = Path(shutil.copytree(run, "copy"))
    words = ("pretrain", "photos+digits", "--out", copy, "--resume", "--epochs")
    line = command.refused(*words, 1)
    assert "2 epochs of the run in copy have started: give at least that many epochs, not 1" in line
    assert command.json(*words, 3)["steps"] == 12
    assert yaml.safe_load((copy / "run.yaml").read_text())["recipe"]["epochs"] == 3


def test_bad_input_to_a_process(tmp_path: Path) -> None:
    done = python("-m", "widefield", "pretrain", "fotos", "--out", "r", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert re.fullmatch("widefield: .*did you mean 'photos'.*", line)
    assert not list(tmp_path.iterdir())


def test_debug_shows_where_it_came_from(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    with pytest.raises(ValueError, match="did you mean 'photos'"):
        command("pretrain", "fotos", "--out", "r", "--debug")
