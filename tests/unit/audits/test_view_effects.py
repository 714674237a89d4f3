"""Features that one operation removes by construction are attributed to it, and no others."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch import nn

from commands import Command
from made_audit import audited
from widefield.audits.result import advice
from widefield.audits.view_effects import IMAGE_VIEWS, ViewEffect, ViewEffects, explain
from widefield.config.recipes import make_recipe
from widefield.data import Dataset, open_dataset
from widefield.data.planted import Digits
from widefield.data.spec import MEMORY
from widefield.encoders import build_encoder
from widefield.inference.features import FeatureExtractor
from widefield.inference.open_encoder import open_encoder
from widefield.inference.splits import TrainTest
from widefield.probes.paired import PairedDifference
from widefield.train.run_dir import RunFolder
from widefield.views import VIEWS

SIDE = 12
NUM_HUES = 10
HUES = np.cos(2 * np.pi * (np.arange(NUM_HUES)[:, None] / NUM_HUES - np.arange(3) / 3))


def made(n: int, seed: int) -> Dataset:
    """Noise, tinted by one of ten hues, with a bright bar at one side; `random` is not in it."""
    rng = np.random.default_rng(seed)
    labels = {
        "hue": rng.integers(NUM_HUES, size=n),
        "side": rng.integers(2, size=n),
        "random": rng.integers(2, size=n),
    }
    images = rng.integers(60, 120, (n, SIDE, SIDE, 1)) * np.ones((1, 1, 1, 3))
    images += 40 * HUES[labels["hue"]][:, None, None]
    columns = np.where(labels["side"][:, None] == 0, np.arange(SIDE), np.arange(SIDE)[::-1])
    images += np.where(columns < 3, 80, 0)[:, None, :, None]
    return Dataset(
        spec="made",
        images=images.clip(0, 255).astype(np.uint8),
        labels={task: y.astype(np.int64) for task, y in labels.items()},
        classes={task: tuple(map(str, range(y.max() + 1))) for task, y in labels.items()},
        names=[f"{seed}/{i}" for i in range(n)],
    )


MADE = TrainTest(train=made(300, 0), test=made(300, 1))
SMALL = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())


def trained_with(views: str) -> FeatureExtractor:
    """A small encoder, as that of a run with these views."""
    run: Any = SimpleNamespace(recipe=lambda: make_recipe(views=views), path=Path("run"))
    return FeatureExtractor(name="made", encoder=SMALL, run=run)


def explained(views: str, *tasks: str) -> dict[str, ViewEffects]:
    return explain(trained_with(views), MADE, tasks, seed=0)


@pytest.fixture(scope="module")
def under_expert() -> dict[str, ViewEffects]:
    return explained("expert", "hue", "side", "random")


def test_a_side_is_removed_by_the_flip_and_kept_without(
    under_expert: dict[str, ViewEffects],
) -> None:
    side = under_expert["side"]
    assert side.cause == "flip"
    assert side.components["flip"].kept < 0.2
    assert side.components["flip"].encoder.after < 0.6 < side.components["flip"].encoder.before
    assert min(side.components[name].kept for name in ("jitter", "grayscale")) > 0.9
    assert side.keeps is not None
    assert "flip" not in side.keeps
    assert "flip removes it: linear-probe accuracy of untrained features 100 %" in side.line()


def test_a_hue_is_removed_by_operations_on_color(under_expert: dict[str, ViewEffects]) -> None:
    hue = under_expert["hue"]
    assert hue.cause == "jitter"
    assert min(hue.components[name].kept for name in ("crop", "flip")) > 0.9
    assert hue.keeps == "crop+flip"


def test_a_random_label_is_attributed_to_nothing(under_expert: dict[str, ViewEffects]) -> None:
    random = under_expert["random"]
    assert (random.is_readable, random.cause, random.keeps) == (False, None, None)
    assert random.command("run", "data") is None
    assert "no effect of views can be measured" in random.line()


@pytest.mark.parametrize(
    ("views", "tasks"), [("crop+flip", ["hue"]), ("color", ["side"]), ("none", ["side", "hue"])]
)
def test_views_that_keep_a_feature_do_not_explain_its_loss(views: str, tasks: list[str]) -> None:
    for found in explained(views, *tasks).values():
        assert (found.is_readable, found.cause, found.keeps) == (True, None, None)
        assert "the views do not remove it" in found.line()
        assert found.command("run", "data") is None


def planted(n: int, seed: int) -> Dataset:
    images = np.random.default_rng(seed).integers(60, 180, (n, 16, 16, 3)).astype(np.uint8)
    return Dataset(
        spec="noise", images=images, labels={}, classes={}, names=[f"{seed}/{i}" for i in range(n)]
    )


@pytest.mark.parametrize(
    ("views", "cause"),
    [("expert", "crop"), ("moderate", "crop"), ("crop", "crop"), ("color", None)],
)
def test_digits_at_fixed_positions_are_removed_by_the_crop(views: str, cause: str | None) -> None:
    data = TrainTest(train=planted(300, 0), test=planted(200, 1)).planted(Digits(), seed=0)
    found = explain(trained_with(views), data, ["digits"], seed=0)["digits"]
    assert found.cause == cause
    assert (
        list(found.components)
        == {
            "expert": ["crop", "flip", "jitter", "grayscale"],
            "moderate": ["crop", "jitter", "grayscale"],
            "crop": ["crop"],
            "color": ["jitter", "grayscale"],
        }[views]
    )
    assert (found.keeps is None) == (cause is None)
    if views == "moderate":  # they do not mirror
        assert not any("flip" in name for name in found.others)


def test_a_task_with_one_example_of_a_class_is_left_out() -> None:
    y = np.zeros(300, np.int64)
    y[0] = 1
    train = made(300, 0)
    train.labels["rare"], train.classes["rare"] = y, ("0", "1")
    test = made(50, 1)
    test.labels["rare"], test.classes["rare"] = y[:50], ("0", "1")
    assert explain(trained_with("none"), TrainTest(train=train, test=test), ["rare"], seed=0) == {}


def test_views_that_need_more_than_the_images_are_not_measured() -> None:
    assert explained("crop+adversarial", "side") == {}
    assert explained("noise:object", "side") == {}


@pytest.mark.parametrize("kind", ["windows", "sounds"])
def test_other_kinds_have_their_own_components(kind: str) -> None:
    """The gain of a window, which scale changes and noise does not; sounds as spectrograms."""
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    if kind == "windows":
        x = (1 + 0.25 * y)[:, None, None] * np.abs(rng.normal(size=(240, 1, 32)))
        raw: dict[str, np.ndarray] = {"windows": x.astype(np.float32), "gain": y}
    else:
        time = np.arange(1000) / 1000
        x = 9000 * np.sin(2 * np.pi * (100 + 100 * y)[:, None] * time)
        x += rng.normal(size=x.shape)
        raw = {"sounds": x.astype(np.int16), "gain": y, "sample_rate": np.array(1000)}
    data = open_dataset(raw)
    split = TrainTest(train=data.subset(np.arange(160)), test=data.subset(np.arange(160, 240)))
    extractor = open_encoder(nn.Flatten())
    found = explain(extractor, split, ["gain"], seed=0, untrained=[nn.Flatten()])["gain"]
    expected = {"windows": ["jitter", "scale", "time-mask"], "sounds": ["expert"]}[kind]
    assert list(found.components) == expected
    if kind == "windows" and found.cause is not None:
        assert found.cause == "scale"


def test_sounds_are_seen_as_the_spectrograms_of_their_encoder() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    tone = 9000 * np.sin(np.pi * (400 + 400 * y)[:, None] * np.arange(1000) / 1000)
    raw = {"sounds": (tone + rng.normal(size=tone.shape)).astype(np.int16), "tone": y}
    data = open_dataset(raw | {"sample_rate": np.array(1000)})
    split = TrainTest(train=data.subset(np.arange(60)), test=data.subset(np.arange(60, 120)))
    encoder = build_encoder(
        "resnet-tiny", channels=1, image_size=data.images.shape[1:3], rate=data.rate, seed=0
    )
    found = explain(open_encoder(encoder), split, ["tone"], seed=0)["tone"]
    assert list(found.components) == ["waveaug", "specaug"]
    assert found.together.untrained.before == 1


def effect(after: float) -> ViewEffect:
    score = PairedDifference(before=0.9, after=after, low=after - 1, high=min(0.0, after - 0.85))
    kept = (after - 0.1) / 0.8
    return ViewEffect(untrained=score, encoder=score, kept=kept, kept_high=min(1.0, kept + 0.0625))


def effects(cause: str | None, together: ViewEffect, **others: ViewEffect) -> ViewEffects:
    return ViewEffects(
        task="digit",
        views="expert",
        majority=0.1,
        components={"crop": effect(0.2)},
        together=together,
        is_readable=True,
        cause=cause,
        others=others,
        keeps=next((name for name, found in others.items() if found.keeps), None),
    )


def test_the_sentence_and_the_figure() -> None:
    found = effects("crop", effect(0.1), gentle=effect(0.5), color=effect(0.88))
    assert found.line() == (
        "digit: crop removes it: linear-probe accuracy of untrained features 90 % without views, "
        "20 % through it, of the encoder's 90 % without views, 20 % through it; color keeps 88 %"
    )
    assert found.figure().shares == {
        "without views": 0.9,
        "crop": 0.2,
        "all of expert": 0.1,
        "instead: gentle": 0.5,
        "instead: color": 0.88,
    }
    unsure = effects(None, replace(effect(0.5), kept_high=0.9))
    assert unsure.line() == (
        "digit: the views may weaken it: untrained features predict it at 90 % without views and "
        "at 50 % through expert, too few examples to tell"
    )
    assert "the views do not remove it" in effects(None, effect(0.85)).line()
    whole = effects(None, effect(0.5), gentle=effect(0.5))
    assert whole.keeps is None
    assert "expert as a whole weakens it" in whole.line()
    assert "no other views keep it" in whole.line()
    assert whole.command("run", "data") is None


def test_a_command_is_advised_where_the_data_have_a_name() -> None:
    found = effects("crop", effect(0.1), color=effect(0.88))
    on_file = replace(audited({"views": "expert"}, digit=0.1), explanations={"digit": found})
    command = "widefield pretrain a --init random --views color --out random-color"
    assert advice(on_file)[0] == f"Views: crop removes digit. Train with `{command}`"
    on_arrays = replace(on_file, fitted_on=MEMORY)
    assert advice(on_arrays)[0] == "Views: crop removes digit. Train with `views='color'`"


def test_views_that_may_keep_a_feature_exist() -> None:
    assert {part for name in IMAGE_VIEWS for part in name.split("+")} <= VIEWS.keys()


def test_the_command_trains_with_the_views_that_keep_it(
    command: Command, tmp_path: Path, under_expert: dict[str, ViewEffects]
) -> None:
    data, run = tmp_path / "my images.npz", tmp_path / "run"
    np.savez(data, x=MADE.train.images[:32])
    short = ("--epochs", 1, "--batch-size", 16, "--encoder", "resnet-tiny")
    command.text("pretrain", data, "--out", run, *short)
    text = under_expert["side"].command(f"{run}/", str(data))
    assert text is not None
    program, *words = shlex.split(text)
    assert program == "widefield"
    command.text(*words, "--epochs", 1, "--batch-size", 16)
    out = Path(words[words.index("--out") + 1])
    assert RunFolder(path=out).recipe().views.names == under_expert["side"].keeps


def test_learned_views_are_those_at_the_end_of_training(command: Command, tmp_path: Path) -> None:
    data, run = tmp_path / "images.npz", tmp_path / "run"
    np.savez(data, x=MADE.train.images[:32])
    short = ("--epochs", 2, "--batch-size", 16, "--encoder", "resnet-tiny")
    command.text("pretrain", data, "--out", run, "--views", "viewmaker+flip", *short)
    found = explain(open_encoder(str(run)), MADE, ["side"], seed=0)["side"]
    assert list(found.components) == ["viewmaker", "flip"]
    assert found.cause == "flip"
