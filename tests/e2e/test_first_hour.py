"""What a user meets in the first hour: the next command, settings from a file, encoders by name."""

import html
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from torch import Tensor, nn

from commands import Command
from forked import ForkedCommand
from made_weights import resnet_file
from runs import images, paint
from widefield.audits import audit as audit_file
from widefield.cli.app import build_app
from widefield.cli.help import EXAMPLES
from widefield.config.recipes import make_recipe
from widefield.core.form import InputSpec
from widefield.data import open_dataset
from widefield.inference import features
from widefield.inference import open_encoder as extractor
from widefield.inference.splits import open_train_test
from widefield.probes import extract
from widefield.train import progress
from widefield.train.next_steps import next_command
from widefield.train.run_dir import load_recipe

TRAIN = "--max-examples 16 --batch-size 8 --image-size 16 --epochs 1 --projector-width 32"
TRAIN += " --projector-dim 16"
TINY = f"{TRAIN} --encoder resnet-tiny"


@pytest.fixture
def arrays(in_tmp: Path) -> Path:
    np.savez(in_tmp / "images.npz", **images())
    return in_tmp / "images.npz"


@pytest.mark.parametrize("data", ["images.npz", "images.npz:train", "flat", "flat:train"])
def test_the_next_command_works_on_the_run_it_stands_under(
    data: str, arrays: Path, command: Command
) -> None:
    """Once `widefield probe run`, which has nothing to score on if a whole path was trained on."""
    paint(Path("flat"), images(20)["x"])
    said = command.text("pretrain", data, "--out", "my run", *TINY.split())
    found = re.search(r"^next: widefield (.*)$", said, re.MULTILINE)
    assert found is not None
    words = shlex.split(found[1])
    assert words[0] == ("probe" if data == "images.npz:train" else "embed")
    assert command.text(*words)
    page = html.unescape((Path("my run") / "report.html").read_text())
    steps = re.findall(r"<code>widefield (.*?)</code>", page)
    assert [shlex.split(step)[0] for step in steps] == [
        "probe" if data == "images.npz:train" else "explore",
        "embed",
    ]
    command.text(*shlex.split(steps[0]))
    if words[0] == "embed":
        reason = "no labeled task" if data == "flat:train" else "nothing to score on"
        assert reason in command.refused("probe", "my run")  # the control


def test_the_next_command_names_what_has_no_name() -> None:
    dataset = open_dataset(np.zeros((9, 8, 8, 3), np.uint8))
    assert next_command(Path("run"), dataset) == "widefield embed run DATA --out run.parquet"


def test_settings_from_a_file_and_options_that_win(arrays: Path, command: Command) -> None:
    parts = ("--method", "simclr", "--views", "cutout")
    words = ("pretrain", arrays, *parts, "--temperature", 0.3, "--cutout-size", 0.2)
    command.text(*words, "--out", "one", *TINY.split())
    command.text("pretrain", arrays, "--out", "two", "--config", "one/run.yaml", *parts)
    one, two = (load_recipe(Path(name, "run.yaml")) for name in ("one", "two"))
    assert one == two
    assert (two.method.name, two.method.flat()["temperature"], two.epochs) == ("simclr", 0.3, 1)
    for name in ("encoder.safetensors", "metrics.csv"):
        first, second = (Path(run, name).read_bytes() for run in ("one", "two"))
        assert first == second or name == "metrics.csv"
    options = ("--temperature", 0.4, "--epochs", 2, "--seed", 3)
    command.text("pretrain", arrays, "--out", "three", "--config", "one/run.yaml", *options)
    three = load_recipe(Path("three", "run.yaml"))
    assert three == one.changed({"temperature": 0.4, "epochs": 2, "seed": 3})
    assert command.json("plan", arrays, "--config", "one/run.yaml")["steps_per_epoch"] == 2
    auto = ("--method", "auto")  # the recipe's own
    command.text("pretrain", arrays, "--out", "four", "--config", "one/run.yaml", *auto)
    assert load_recipe(Path("four", "run.yaml")) == one
    command.text("pretrain", arrays, "--out", "four", "--resume", "--epochs", 2, *auto)
    assert load_recipe(Path("four", "run.yaml")) == one.changed({"epochs": 2})


@pytest.mark.parametrize(
    ("line", "edit", "value"),
    [("lr: 0.02", "lr: 1e-3", 0.001), ("precision: ['\"]?\\w+['\"]?", "precision: 32", "32")],
)
def test_numbers_in_a_file_may_be_written_as_options_are(
    line: str, edit: str, value: object, arrays: Path, command: Command
) -> None:
    command.text("pretrain", arrays, "--out", "one", *TINY.split())
    text, changed = re.subn(line, edit, Path("one/run.yaml").read_text(), count=1)
    assert changed
    Path("two.yaml").write_text(text)
    assert load_recipe(Path("two.yaml")).flat()[edit.split(":")[0]] == value


def edited(change: Callable[[dict[str, object]], object]) -> None:
    settings = yaml.safe_load(Path("one.yaml").read_text())
    change(settings["recipe"])
    Path("two.yaml").write_text(yaml.safe_dump(settings))


def test_a_file_that_holds_no_settings(arrays: Path, command: Command) -> None:
    command.text("pretrain", arrays, "--out", "run", *TINY.split())
    Path("run/run.yaml").rename("one.yaml")
    Path("run").rename("old")
    words = ("pretrain", arrays, "--out", "run")
    changes: dict[str, Callable[[dict[str, object]], object]] = {
        "unknown": lambda recipe: recipe.update(batchsize=3),
        "missing": lambda recipe: recipe.pop("epochs"),
        "epochs": lambda recipe: recipe.update(epochs=0),
        "batch_size": lambda recipe: recipe.update(batch_size="many"),
    }
    for word, change in changes.items():
        edited(change)
        line = command.refused(*words, "--config", "two.yaml")
        assert "two.yaml has an invalid recipe" in line, word
    Path("two.yaml").write_text("a: &a [*a]")
    assert "two.yaml cannot be read as YAML" in command.refused(*words, "--config", "two.yaml")
    assert "no settings at gone.yaml" in command.refused(*words, "--config", "gone.yaml")
    line = command.refused(*words, "--config", "one.yaml", "--resume")
    assert "leave out --config or --resume" in line
    line = command.refused(*words, "--config", "one.yaml", "--recipe", "solo-learn")
    assert "leave out --recipe solo-learn" in line
    assert not Path("run").exists()


def test_a_setting_is_in_a_run_yaml_if_it_is_in_a_recipe(arrays: Path, command: Command) -> None:
    """So that nothing that a file holds is passed over."""
    command.text("pretrain", arrays, "--out", "run", *TINY.split())
    held = yaml.safe_load(Path("run/run.yaml").read_text())["recipe"]
    assert held.keys() == make_recipe().to_dict().keys()


def fails_at_work(encoder: nn.Module, x: Any, *rest: Any, **named: Any) -> Tensor:
    """Compute the features of two examples, by which a command checks its input, and no others."""
    return extract(encoder, x, *rest, **named) if len(x) == 2 else pytest.fail("work")


@pytest.mark.parametrize("words", ["probe E D --train-data D --no-floors", "embed E D --out e.npz",
                                   "classify E D --labels l.csv --out p.csv",
                                   "export E --out x.safetensors"])  # fmt: skip
def test_timms_names_are_taken_wherever_an_encoder_is(
    words: str, arrays: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was taken is said before the work begins, not after it."""
    weights = resnet_file(Path("w.safetensors"))
    monkeypatch.setattr(extractor, "cached_weights", lambda name: weights)
    Path("l.csv").write_text("path,label\nrow 0,a\nrow 1,b\nrow 2,a\nrow 3,b\n")
    line = [{"E": "timm:resnet10t", "D": str(arrays)}.get(word, word) for word in words.split()]
    code, _, err = command(*line)
    assert code == 0, err
    if words.startswith("export"):
        return
    assert "tensors found" in err.splitlines()[0]
    monkeypatch.setattr(features, "extract", fails_at_work)
    line = [word.replace("e.npz", "f.npz").replace("p.csv", "q.csv") for word in line]
    with pytest.raises(pytest.fail.Exception, match="work"):
        command(*line)
    assert "tensors found" in command.capsys.readouterr().err


@pytest.mark.parametrize("words", ["audit E D", "explore E D --out x.html"])
def test_what_was_taken_of_weights_is_said_before_the_work(
    words: str, arrays: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = resnet_file(Path("w.safetensors"))
    monkeypatch.setattr(extractor, "cached_weights", lambda name: weights)
    monkeypatch.setattr(features, "extract", fails_at_work)
    line = [{"E": "timm:resnet10t", "D": str(arrays)}.get(word, word) for word in words.split()]
    with pytest.raises(pytest.fail.Exception, match="work"):
        command(*line)
    assert "tensors found" in command.capsys.readouterr().err


def test_a_run_can_train_what_timm_names(arrays: Path, command: Command) -> None:
    words = [*TRAIN.split(), "--encoder", "timm:mobilenetv3_small_050"]
    command.text("pretrain", arrays, "--out", "run", *words)
    assert command.json("export", "run", "--out", "x.safetensors")["encoder"] == (
        "mobilenetv3_small_050"
    )


def test_weights_that_cannot_be_exported(in_tmp: Path, command: Command) -> None:
    line = command.refused("export", "timm:resnet10t", "--out", "x.safetensors")
    assert "has no trained weights to export" in line
    assert not list(in_tmp.iterdir())


def test_an_encoder_that_cannot_take_the_images(arrays: Path, command: Command) -> None:
    """Said before a run begins, with a size that it can take; once it left a run behind."""
    words = ("--out", "run", *TRAIN.split(), "--encoder", "vgg11")
    line = command.refused("pretrain", arrays, *words)
    found = re.search(r"cannot take images of 16x16 .*: choose --image-size (\d+)", line)
    assert found is not None, line
    assert not Path("run").exists()
    refused = command.refused("embed", "timm:vgg11", arrays, "--out", "e.npz")
    assert "cannot take images of 16x16" in refused
    assert (
        make_recipe()
        .encoder.changed({"encoder": "vgg11"})
        .width(InputSpec(image_size=int(found[1])))
        == 4096
    )


def lines_at_once() -> None:
    progress.SECONDS_BETWEEN_LINES = progress.SECONDS_BETWEEN_LOSSES = 0.0


def logged(*words: str | Path) -> str:
    """Return what a command writes to stderr where that is a file."""
    done = ForkedCommand(*words, first=lines_at_once)
    _, err = done.communicate()
    assert done.returncode == 0, err
    assert "\r" not in err
    return err


def test_a_log_file_gets_lines_and_no_bar(in_tmp: Path) -> None:
    folder, run = in_tmp / "flat", in_tmp / "run"
    paint(folder, images(20)["x"])
    said = logged("pretrain", folder, "--out", run, *TINY.split())
    assert "reading images: 16 of 16" in said
    assert re.search(r"^epoch 1/1  loss [\d.]+  [\d,]+ examples/s", said, re.MULTILINE)
    assert "encoding images: 20 of 20" in logged("embed", run, folder, "--out", in_tmp / "e.npz")


def test_an_audit_fits_on_one_set_and_scores_on_another(
    arrays: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = images()["x"], images()["y"]
    np.savez("others.npz", x=x[::-1], y=y[::-1])
    pixels = extractor.open_encoder("pixels")
    split = open_train_test(
        pixels, arrays, train_data="others.npz", max_examples=48, seed=0, quiet=True
    )
    assert (split.train.spec, split.test.spec) == ("others.npz", str(arrays))
    assert (len(split.train), len(split.test)) == (48, 12)
    np.testing.assert_array_equal(split.train.images[0], x[-1])
    np.testing.assert_array_equal(split.test.images[0], x[0])
    fail = monkeypatch.setattr
    fail(audit_file, "open_train_test", lambda *args, **given: pytest.fail(str(given)))
    with pytest.raises(pytest.fail.Exception, match=r"'train_data': 'others\.npz'"):
        command("audit", "pixels", arrays, "--train-data", "others.npz")


@pytest.mark.parametrize("name", EXAMPLES)
def test_help_has_groups_in_order_and_examples_that_can_be_typed(
    name: str, command: Command
) -> None:
    text = command.text(name, "--help")
    assert ("--json" in text) == (name != "completion")
    places = [text.find(f"─ {title}") for title in ("Data ─", "Training", "Method", "Output ─")]
    there = [place for place in places if place >= 0]
    assert there == sorted(there)
    for line in EXAMPLES[name]:
        assert f"  {line}\n" in text
        words = shlex.split(line, comments=True)
        if words[0] == "widefield":
            build_app(words[1:]).parse_args(words[1:], exit_on_error=False, print_error=False)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete_every_option(shell: str, command: Command, in_tmp: Path) -> None:
    script = command.text("completion", shell)
    for word in ("pretrain", "classify", "temperature", "train-data"):
        assert word in script
    if shell == "bash":
        (in_tmp / "script").write_text(script)
        subprocess.run(["bash", "-n", "script"], check=True)
    if shell == "zsh":
        assert "'1:Images or sounds, as pretrain takes them.:_files'" in script
        positional = [line.strip() for line in script.splitlines() if line.strip()[:2] == "'1"]
        assert any("'\\''" in line for line in positional)  # a message with an apostrophe
        for line in positional:
            assert line.count(":") >= 2, line
            assert shlex.split(line.removesuffix("\\").strip())[0].startswith("1:"), line
    assert "tcsh" in command.refused("completion", "tcsh")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("widefield pretrain my", ["my images", "my-run"]),
        ("widefield pretrain data --out my", ["my images", "my-run"]),
        ("widefield probe run data --features wi", ["wide"]),
        ("widefield embed run data --fea", ["--features"]),
    ],
)
def test_bash_completes_files_and_choices(
    typed: str, offered: list[str], command: Command, in_tmp: Path
) -> None:
    """Where the script has nothing to offer, bash completes files, as it was told to."""
    (in_tmp / "script").write_text(command.text("completion", "bash"))
    for name in ("my images", "my-run"):
        (in_tmp / name).mkdir()
    ask = (
        "source ./script; COMP_WORDS=($1); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _widefield; "
        "options=$(complete -p widefield); "
        "if (( ${#COMPREPLY[@]} )); then printf '%s\\n' \"${COMPREPLY[@]}\"; "
        "elif [[ $options == *'-o default'* ]]; then compgen -f -- \"${COMP_WORDS[-1]}\"; fi"
    )
    done = subprocess.run(
        ["bash", "-c", ask, "bash", typed], capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.splitlines()) == offered


def test_a_run_says_whether_it_is_better_than_untrained(command: Command, in_tmp: Path) -> None:
    """The control learns nothing: its rate is next to zero."""
    words = (
        "pretrain photos --max-examples 256 --image-size 16 --batch-size 32 --encoder resnet-tiny"
    )
    words += " --projector-width 64 --projector-dim 32 --out"
    said = command.text(*words.split(), "good", "--epochs", 8)
    assert "better than untrained: " in said
    # Crops of one photo overlap. This line has the place of the scores without labels.
    assert re.search(r"\n\d+ of 256 images have near-copies among the examples ", said)
    assert said.startswith("linear probe on class ")
    assert re.search(r"\d points? (above|below) the untrained network", said.splitlines()[0])
    page = Path("good/report.html").read_text()
    reason = "the mean of the label-free scores is significantly higher"
    assert f"Verdict: better than untrained: {reason}." in page
    assert "Neighbor consistency under augmentation " in page
    assert "Linear-probe accuracy (class): " in page
    control = ("control", "--epochs", 1, "--lr", 1e-9)
    found = command.json(*words.split(), *control)["comparison"]
    assert found["without_labels"] in ("no significant difference", "inconclusive")
    assert found["linear"]["class"]["low"] <= 0
