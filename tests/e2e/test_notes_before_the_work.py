"""What the data were taken for is on stderr when the work begins, once, and a refusal is alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from commands import Command
from runs import SMALL, images
from widefield.inference import features
from widefield.inference.features import FeatureExtractor
from widefield.train.step import TrainStep
from widefield.workflows import embed, pretrain, probe, recover
from widefield.workflows.plan import plan

NOTE = "classes, by folder: blue 20, red 20"
MERGED = "of 'label' is the class 'red'"
OPTIONS = {**SMALL, "epochs": 1}
del OPTIONS["max_examples"], OPTIONS["quiet"]
WORDS = [word for k, v in OPTIONS.items() for word in (f"--{k.replace('_', '-')}", str(v))]

COMMANDS: dict[str, tuple[list[Any], str]] = {
    "probe": (["pixels", "mine:test", "--train-data", "mine:train", "--no-floors"], NOTE),
    "audit": (["pixels", "mine", "--cache", "kept"], NOTE),
    "explore": (["pixels", "mine", "--out", "x.html"], NOTE),
    "embed": (["pixels", "mine", "--out", "e.npz"], NOTE),
    "classify": (["pixels", "mine", "--labels", "labels.csv", "--out", "p.csv"], MERGED),
    "plan": (["mine", *WORDS], NOTE),
    "pretrain": (["mine", "--out", "new", *WORDS], NOTE),
    "recover": (["run", "--out", "further", "--epochs", "1"], NOTE),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in folders of classes, labels in two spellings, and a run on the images."""
    root = tmp_path_factory.mktemp("notes")
    arrays, lines = images(40), ["path,label"]
    for i, (x, y) in enumerate(zip(arrays["x"], arrays["y"], strict=True)):
        name = f"{('red', 'blue')[y]}/{i}.png"
        (root / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(x).save(root / "mine" / name)
        lines.append(f"{name},{('Red' if i == 0 else 'red', 'blue')[y]}")
    (root / "labels.csv").write_text("\n".join(lines))
    pretrain.pretrain(root / "mine", out=root / "run", **OPTIONS, quiet=True)
    return root


@pytest.fixture
def here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder with links to these."""
    for name in ("mine", "labels.csv", "run"):
        (tmp_path / name).symlink_to(folder / name)
    monkeypatch.chdir(tmp_path)


def said_before(command: Command, monkeypatch: pytest.MonkeyPatch, name: str) -> str:
    """Call a command, and return what was on stderr when its work began; check the whole."""
    begun: list[str] = []

    def at_work(original: Callable[..., Any], first: Callable[..., bool]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if not begun and first(*args):
                begun.append(command.capsys.readouterr().err)
            return original(*args, **options)

        return call

    def always(*args: Any) -> bool:
        return True

    def is_long(module: object, inputs: Any, *_: object) -> bool:
        return len(inputs.images if hasattr(inputs, "images") else inputs) > 2

    if name in ("plan", "pretrain"):
        monkeypatch.setattr(TrainStep, "__call__", at_work(TrainStep.__call__, always))
    elif name == "recover":
        steps = at_work(recover.train_to_predict, always)
        monkeypatch.setattr(recover, "train_to_predict", steps)
    elif name == "probe":  # of pixels, which nothing encodes
        work = at_work(features.FeatureExtractor.probe_features, always)
        monkeypatch.setattr(features.FeatureExtractor, "probe_features", work)
    else:
        monkeypatch.setattr(features, "extract", at_work(features.extract, is_long))
    words, note = COMMANDS[name]
    code, out, err = command(name, *words)
    assert code == 0, err
    (before,) = begun
    assert (before + out + err).count(note) == 1
    return before


@pytest.mark.parametrize("name", COMMANDS)
def test_notes_come_first(
    here: None, command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = said_before(command, monkeypatch, name)
    (line,) = (line for line in before.splitlines() if COMMANDS[name][1] in line)
    assert line.startswith("note: ")


@pytest.mark.parametrize("name", ["probe", "explore", "embed", "classify"])
def test_the_old_order_is_seen(
    here: None, command: Command, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The control: without the callback, notes are printed after the work, once as well."""
    monkeypatch.setattr(features, "send_notes", lambda notes, on_note: None)
    assert COMMANDS[name][1] not in said_before(command, monkeypatch, name)


REFUSED = {
    **{
        name: (["--features", "wide"], "no stages are found")
        for name in ("probe", "audit", "explore", "embed", "classify")
    },
    "plan": (["--views", "noise:object"], "where an object is planted"),
    "pretrain": (["--views", "noise:object"], "where an object is planted"),
    "recover": (["--feature", "class"], "nothing to recover"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_line_without_notes(here: None, command: Command, name: str) -> None:
    words, message = REFUSED[name]
    code, out, err = command(name, *COMMANDS[name][0], *words)
    (line,) = err.splitlines()
    assert (code, out) == (2, "")
    assert message in line


def test_without_the_early_check_it_would_not_be(
    here: None, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FeatureExtractor, "check", lambda *_, **options: None)
    words = [*COMMANDS["embed"][0], "--features", "wide"]
    assert len(command("embed", *words)[2].splitlines()) > 1


def test_python_prints_no_notes_and_gives_them(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[str] = []
    report = probe.probe("pixels", "mine:test", train_data="mine:train", floors=False)
    found = embed.embed("pixels", "mine", on_note=heard.append)
    assert heard == list(found.notes)
    assert f"fitted on: {NOTE}" not in report.notes
    assert any(NOTE in note for note in (*report.notes, *found.notes))
    assert NOTE not in "".join(capsys.readouterr())


def test_recover_keeps_the_notes_of_a_table(here: None) -> None:
    table = {f"red/{2 * i}.png": ("up", "NA")[i % 3 == 0] for i in range(20)}
    table |= {f"blue/{2 * i + 1}.png": "Up" if i == 0 else "down" for i in range(20)}
    dataset = recover.training_data(recover.open_encoder("run").require_run(""))
    labeled, task = recover._with_feature(dataset, table)
    assert task == "label"
    assert "labels: 7 cells of 'label' are 'NA': missing, not a class" in labeled.notes
    assert any("'Up' of 'label' is the class 'up'" in note for note in labeled.notes)
    assert any(note.startswith("classes of 'label': down 19, up 14; 7") for note in labeled.notes)
    assert recover._with_feature(dataset, None)[0].notes == dataset.notes


def test_plan_takes_groups_and_names_them(here: None) -> None:
    heard: list[str] = []
    ahead = plan("mine", group=r"regex:(\d)\.png", on_note=heard.append, **OPTIONS)
    (note,) = (note for note in heard if note.startswith("group "))
    assert "10 groups of 40 examples" in note
    assert list(ahead.notes) == heard
    with pytest.raises(ValueError, match="no column 'scene' to group by"):
        plan("mine", group="scene", **OPTIONS)
