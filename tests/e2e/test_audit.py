"""`widefield audit` as a user types it, on small images and with ceilings of a few steps."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import widefield
from commands import Command
from elsewhere import Elsewhere
from runs import uncompared
from widefield.audits import pictures, tasks
from widefield.audits.page import audit_page, summary
from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.probes.verdicts import SHARE_VERDICTS

RUN: dict[str, Any] = {
    "encoder": "resnet-tiny",
    "batch_size": 32,
    "projector_width": 16,
    "projector_dim": 8,
    "quiet": True,
}


def images(n: int = 160, seed: int = 0) -> dict[str, Any]:
    """Gray noise whose tint says `kind`; `row` says which half is dark."""
    rng = np.random.default_rng(seed)
    kind, row = rng.integers(3, size=n), rng.integers(2, size=n)
    x = rng.integers(40, 160, size=(n, 16, 16, 3))
    x[np.arange(n), :, :, kind] += 60
    x[row == 1, :8] -= 40
    return {"x": x.astype(np.uint8), "kind": kind, "row": row}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, a run, a file of another library, and a cache."""
    folder = tmp_path_factory.mktemp("audit")
    np.savez(folder / "mine.npz", **images())
    np.savez(folder / "bare.npz", x=images()["x"])
    settings = {**RUN, "epochs": 2, "checkpoint_every": 1}
    with uncompared():
        widefield.pretrain(f"{folder}/mine.npz:train", out=folder / "run", **settings)
    other = build_encoder("resnet-tiny", image_size=16, seed=3)
    weights = {f"student.{key}": value for key, value in other.backbone.state_dict().items()}
    save_file(weights, folder / "theirs.safetensors")
    return folder


def test_a_run_on_the_data_it_was_trained_on(command: Command, place: Path, tmp_path: Path) -> None:
    words = ("audit", place / "run", "--cache", place / "cache", "--json")
    page = tmp_path / "made" / "first.html"  # in a new folder
    text = command.text(*words, "--out", page)
    assert len(text) < 1_500_000
    assert page.exists()
    found = json.loads(text)
    assert found["scored_on"].endswith("mine.npz:test")
    assert found["tasks"].keys() == {"kind", "row"}
    for task in found["tasks"].values():
        assert task["verdict"] in SHARE_VERDICTS
        assert 0 <= task["low"] <= task["accuracy"] <= task["high"] <= 1
    assert 1 <= found["features"]["effective_rank"] <= found["features"]["possible_rank"]


def test_a_run_on_all_of_a_path_is_judged_on_two_parts_of_it(command: Command, place: Path) -> None:
    with uncompared():
        widefield.pretrain(f"{place}/mine.npz", out=place / "on-all", epochs=1, **RUN)
    found = command.json("audit", place / "on-all", "--cache", place / "cache")
    named = command.json("audit", place / "on-all", place / "mine.npz", "--cache", place / "cache")
    assert found["scored_on"].endswith("mine.npz:test")
    assert found["tasks"] == named["tasks"]
    assert not [note for note in found["notes"] if "fitted on, so" in note]


def test_scored_images_that_were_fitted_on_are_said(command: Command, place: Path) -> None:
    data = place / "mine.npz"
    words = (
        "pixels",
        data,
        "--train-data",
        data,
        "--max-examples",
        120,
        "--cache",
        place / "cache",
    )
    notes = command.json("audit", *words)["notes"]
    assert [note for note in notes if "occur in the training data of the probe" in note]


def test_the_second_audit_trains_no_ceiling(command: Command, place: Path) -> None:
    cache = place / "another-cache"
    words = ("timm:resnet-tiny", place / "mine.npz", "--max-examples", 120, "--cache", cache)
    _, first, before = command("audit", *words)
    assert before.count("training a supervised ceiling") == 2
    _, second, said = command("audit", *words)
    assert "ceiling" not in said
    assert first == second
    assert "random weights" in before
    assert "kind:" in first


def test_a_file_of_another_library_says_what_was_matched(command: Command, place: Path) -> None:
    weights = f"{place}/theirs.safetensors@resnet-tiny"
    found = command.json("audit", weights, place / "mine.npz", "--max-examples", 120)
    (note,) = [note for note in found["notes"] if "theirs.safetensors" in note]
    assert "resnet-tiny" in note
    assert "student" in note


def test_the_report_holds_every_verdict(command: Command, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    words = (place / "run", "--plant", "shapes", "--all-checkpoints", "--cache", place / "cache")
    words = (*words, "--compare", "timm:resnet-tiny", "--out", out)
    found = command.json("audit", *words)
    assert found["tasks"].keys() == {"kind", "row", "shapes"}
    assert found["checkpoints"].keys() == {"1", "2"}
    last = found["checkpoints"]["2"]
    assert last == found["tasks"]
    assert found["compared"]["timm:resnet-tiny"].keys() == {"kind", "row", "shapes"}
    assert 0 <= found["similarity"]["timm:resnet-tiny"] <= 1
    against = found["comparisons"]["timm:resnet-tiny"]
    assert (against["baseline"], against["linear"]) == ("other", {})
    assert against["cka"] == pytest.approx(found["similarity"]["timm:resnet-tiny"], abs=1e-4)
    assert against["verdict"] in ("worse", "better", "no significant difference")
    assert len(found["plants"]["shapes"]["grades"]) == 2
    assert all(0 <= share <= 1 for share in found["plants"]["shapes"]["neighbors_kept"])
    page = out.read_text()
    assert len(page) < 5_000_000
    for task, one in found["tasks"].items():
        assert re.search(rf">{task}<.*?{one['verdict']}", page, re.DOTALL)
    shares = [task["learned"] for row in found["checkpoints"].values() for task in row.values()]
    assert ("When was it learned?" in page) == any(share is not None for share in shares)
    shares = [grade["learned"] for grade in found["plants"]["shapes"]["grades"]]
    assert ("How easy must a planted feature be?" in page) == any(
        share is not None for share in shares
    )
    assert "Do plants hide the images?" in page
    code, _, said = command("audit", *words)
    assert code == 2
    assert "--overwrite" in said
    assert out.read_text() == page


def test_images_without_labels_are_planted(command: Command, place: Path) -> None:
    words = ("pixels", place / "bare.npz", "--max-examples", 120, "--cache", place / "cache")
    said = command.text("audit", *words)
    for task in ("shapes", "digits"):
        assert re.search(rf"^{task}: ", said, re.MULTILINE)
    assert "nearest neighbors" in said


class Broken(nn.Module):
    """A module x -> h that is wrong in one way."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong = wrong
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        h = self.scale * nn.functional.adaptive_avg_pool2d(x, 4)
        match self.wrong:
            case "rank":
                return h
            case "nan":
                return h.flatten(1) / 0 * 0
            case "fickle":
                return h.flatten(1) + torch.rand(len(x), h.flatten(1).shape[1])
        return h.flatten(1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("rank", r"returns a tensor .*: return features \[B, D\]"), ("nan", "are NaN or infinite")],
)
def test_modules_that_cannot_be_audited(place: Path, wrong: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        widefield.audit(Broken(wrong), images(80), cache=place / "cache", quiet=True)
    assert "\n" not in str(refused.value)


class Blind(nn.Module):
    """A module that sees nothing, or but the mean color."""

    def __init__(self, *, quite: bool) -> None:
        super().__init__()
        self.sight = 0.0 if quite else 1.0

    def forward(self, x: Tensor) -> Tensor:
        return 1 + self.sight * x.mean((2, 3))


def test_two_encoders_of_one_name_are_told_apart(place: Path) -> None:
    """The features of one do not vary: there is nothing to tell of how alike the two are."""
    blind, other = Blind(quite=True), Blind(quite=False)
    found = widefield.audit(other, images(120), compare=blind, cache=place / "cache", quiet=True)
    own, theirs = found.tasks["kind"], found.compared["Blind (compared)"]["kind"]
    assert found.encoder == "Blind"
    assert own.accuracy > theirs.accuracy
    page = audit_page(found)
    for task in (own, theirs):
        assert f"probe {100 * task.accuracy:.1f} %" in page
    assert "Blind, " in summary(found)
    assert "Blind (compared), " in summary(found)
    assert found.similarity == {}
    assert found.comparisons == {}  # 24 images are too few


def test_a_rival_of_other_images_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "graded_bounds", lambda *_, **__: pytest.fail("measured"))
    rival = build_encoder("resnet-tiny", image_size=32, channels=1, seed=0)
    with pytest.raises(ValueError, match=r"differs: .* for resnet-tiny, .* audit them one by one"):
        widefield.audit("pixels", images(120), compare=rival, quiet=True)


def test_what_makes_verdicts_unsure_is_said(place: Path) -> None:
    found = widefield.audit(Broken("fickle"), images(80), cache=place / "cache", quiet=True)
    assert any("the encoder is not deterministic" in note for note in found.notes)
    found = widefield.audit(Broken(""), images(50), cache=place / "cache", quiet=True)
    assert not any("changes its output" in note for note in found.notes)
    assert any("are fewer than the" in note for note in found.notes)
    assert any(f"{found.examples[1]} test images are too few" in note for note in found.notes)
    found = widefield.audit(Broken(""), images(160), cache=place / "cache", quiet=True)
    assert found.examples[1] >= 20
    assert not any("are few" in note for note in found.notes)


def test_the_pictures_leave_a_module_on_its_device() -> None:
    dataset = open_dataset(images(20))
    encoder = Elsewhere()
    pictures.mean_activation_rates(encoder, dataset)
    assert encoder.came_back()


ONE = np.zeros(40, np.int64)
LONELY = np.r_[np.arange(39) % 2, 2]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"kind": ONE}, "hold one class"),
        ({"kind": np.arange(7) % 2}, "expected one label for each of 40 examples"),
    ],
    ids=["one class", "other length"],
)
def test_labels_that_cannot_be_judged(
    command: Command, tmp_path: Path, labels: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "bad.npz", x=images(40)["x"], **labels)
    words = ("audit", "pixels", tmp_path / "bad.npz", "--cache", tmp_path / "cache")
    assert message in command.refused(*words)


def test_a_class_with_one_example_leaves_the_others_judged(
    command: Command, tmp_path: Path
) -> None:
    np.savez(tmp_path / "lonely.npz", x=images(40)["x"], kind=LONELY)
    code, out, err = command(
        "audit", "pixels", tmp_path / "lonely.npz", "--cache", tmp_path / "cache"
    )
    assert code == 0
    assert "kind" in out
    assert "2" in next(line for line in err.splitlines() if "left out" in line)


BAD = {
    "nowhere photos": "no encoder 'nowhere'",
    "": "requires an argument",
    "random": "is not a widefield run: give the data",
    "random photos --plant shape": "did you mean 'shapes'",
    "random photos --all-checkpoints": "no checkpoints",
    "random photos --out r.pdf": ".html",
    "random photos --out empty.safetensors/r.html": "choose another place",
    "random photos+digits --plant digits --max-examples 64": "has a task 'digits'",
    "empty.safetensors photos": "empty.safetensors",
    "timm:resnet81 photos --max-examples 64": "did you mean",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_input_gets_one_line(command: Command, in_tmp: Path, words: str) -> None:
    save_file({"nothing": torch.zeros(3)}, in_tmp / "empty.safetensors")
    assert BAD[words] in command.refused("audit", *words.split())


@pytest.mark.parametrize(
    ("data", "words", "message"),
    [
        (
            "mine",
            ["--max-examples", "6"],
            "1 of the images is scored, and an audit needs two: give more",
        ),
        (
            "few",
            ["--plant", "letters"],
            "too few images to plant 'letters' in: give more, or --pla",
        ),
        ("handful", [], "images to fit on are too few to plant anything in: give more"),
    ],
)
def test_too_few_images_are_refused_before_anything_is_measured(
    data: str,
    words: list[str],
    message: str,
    command: Command,
    in_tmp: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "graded_bounds", lambda *_, **__: pytest.fail("measured"))
    np.savez(in_tmp / "mine.npz", **images(60))
    np.savez(in_tmp / "few.npz", x=images(30)["x"])
    np.savez(in_tmp / "handful.npz", x=images(6)["x"])
    assert message in command.refused("audit", "pixels", f"{data}.npz", *words)


def test_a_plant_that_there_are_too_few_images_for_is_left_out(place: Path) -> None:
    found = widefield.audit("pixels", images(30)["x"], cache=place / "cache", quiet=True)
    assert found.tasks.keys() == {"shapes"}
    left = "too few images to plant 'digits' in, so that it is left out: give more"
    assert left in found.notes
