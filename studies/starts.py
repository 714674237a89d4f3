"""What going on from an encoder gains over the encoder as it is, and over starting anew."""

import json
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import widefield
from studies.study import Arm, Finding, Measured, Scale, SeedRuns, cpu_study, percent
from studies.trained import (
    Sets,
    Trained,
    accuracies,
    accuracy_of_others,
    features,
    labeled,
    probes,
    with_neighbors,
)
from widefield.data import Dataset
from widefield.encoders import Encoder, averaged, load_encoder, save_encoder
from widefield.probes.explained import explained, trained_share
from widefield.probes.features import Pixels
from widefield.probes.few_labels import fit_few_labels
from widefield.train import checkpoint

SHOWN = 24_000
"""Images that every run is shown, counted with repetition: its time."""
TARGETS = {"CIFAR-10": "cifar10", "MNIST": "mnist", "photos": "photos"}
PHOTOS = 4000  # images, which is all
STARTS = {
    "labels": Arm(data="cifar100", settings={"method": "supervised"}, epochs=1 / 6),
    "S-DIET": Arm(data="cifar100", settings={"method": "s-diet"}, epochs=1 / 6),
}
"""How an encoder was trained on CIFAR-100, in 8 epochs; random weights have no start."""
BEFORE = {"init_lr_scale": 0.3, "freeze_norm_layers": False, "init_average": 1.0}
"""What the default of starts was when these studies were run."""
CHOICES: dict[str, dict[str, Any]] = {
    "lr x 1": {"init_lr_scale": 1.0},
    "lr x 0.3": {"init_lr_scale": 0.3},
    "lr x 0.1": {"init_lr_scale": 0.1},
    "lr x 0.3, layer decay 0.5": {"init_lr_scale": 0.3, "layer_decay": 0.5},
    "lr x 0.3, first 2 blocks frozen": {"init_lr_scale": 0.3, "freeze_blocks": 2},
    "lr x 0.3, norms frozen": {"init_lr_scale": 0.3, "freeze_norm_layers": True},
    "lr x 100": {"init_lr_scale": 100.0},
}


def _arms() -> Iterator[tuple[str, Arm]]:
    for start in (*STARTS, "random weights"):
        for target, pack in TARGETS.items():
            for images in (500, 2000, 5000):
                n = min(images, PHOTOS) if pack == "photos" else images
                arm = Arm(
                    data=pack,
                    settings={"method": "view-contrast", **BEFORE},
                    start=STARTS.get(start),
                    images=n,
                    epochs=SHOWN // n / 48,
                )
                yield f"{start}, {target}, {n:,} images", arm


def adapted(trained: Trained, sets: Sets) -> Measured:
    """Return the class accuracy of the encoder, and of its start if it has one, in percent."""
    assert trained.folder is not None
    encoders = {"adapted, %": trained.encoder}
    if trained.arm.start is not None:
        encoders = {"frozen, %": load_encoder(trained.folder / "init"), **encoders}
    return {name: accuracies(encoder, sets)["class"] for name, encoder in encoders.items()}


def before_and_after(trained: Trained) -> Measured:
    """Return the class accuracy of start and adapted encoder, and the verdicts of the run."""
    assert trained.folder is not None
    return adapted(trained, trained.test_sets()) | verdicts(trained.folder)


def verdicts(folder: Path) -> Measured:
    """Return whether the run judged its encoder better or worse, with labels and without."""
    file = folder / "comparison.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    kinds = {"verdict": "with labels", "without_labels": "without"}
    return {
        f"judged {word}, {name}": float(found[key] == word)
        for key, name in kinds.items()
        if key in found
        for word in ("better", "worse")
    }


START_TABLE = cpu_study(
    id="starts",
    question="What does going on from an encoder gain over it, and over starting anew?",
    cpu=Scale(images=20_000, epochs=48, minutes=120),
    arms=dict(_arms()),
    measure=before_and_after,
    conclusion=(
        "Random weights are the same objective in the same time. The rule that a fall of more "
        "than a point has to be ruled out was made after two seeds. Adapting gains most on MNIST, "
        "gray strokes where the start saw color photographs, and little or nothing on photographs "
        "like those of the start."
    ),
)


START_CHOICES = cpu_study(
    id="start-settings",
    question="How should an encoder go on from a start?",
    cpu=Scale(images=20_000, epochs=48, seeds=(0,), minutes=20),
    arms={
        f"{target}, {name}": Arm(
            data=TARGETS[target],
            settings=BEFORE | settings,
            start=STARTS["labels"],
            images=2000,
            epochs=12 / 48,
        )
        for target in ("CIFAR-10", "MNIST")
        for name, settings in CHOICES.items()
    },
    measure=lambda trained: adapted(trained, trained.choice_sets()),
    conclusion=(
        "The default was 0.3, which changes the encoder less than the full rate. Layer-wise decay "
        "and frozen layers are not significantly better. The rate of 100 is a control, which ruins "
        "the features on CIFAR-10. Low-rank changes of a vision transformer (LoRA, rank 8) were "
        "tried and are not offered: a point above all weights at their best rate, and not faster."
    ),
)

LABELS, DRAWS, BATCH = 5, 5, 25
TUNING: dict[str, dict[str, Any]] = {
    "CIFAR-10": {"epochs": 100, "init_lr_scale": 0.03},
    "MNIST": {"epochs": 100, "init_lr_scale": 1.0},
}
"""The best of 6 settings of fine-tuning, chosen on other labels."""


def five_labels(trained: Trained) -> Measured:
    """Return accuracies from five labels a class: pixels, frozen, adapted and fine-tuned."""
    assert trained.folder is not None
    images = trained.train_set()
    found = {
        "pixels": features(Pixels.of(images.images), images),
        "frozen": features(load_encoder(trained.folder / "init"), images),
        "adapted": features(trained.encoder, images),
    }
    y, shares = images.labels["class"], {name: list[float]() for name in (*found, "fine-tuned")}
    for draw in range(DRAWS):
        known = labeled(y, LABELS, seed=DRAWS * trained.seed + draw)
        for name, h in found.items():
            guess = fit_few_labels(h.numpy(), known, y[known], classes=int(y.max()) + 1)
            shares[name].append(accuracy_of_others(guess.predicted.argmax(1), y, known))
        shares["fine-tuned"].append(
            accuracy_of_others(_fine_tuned(trained, images, known), y, known)
        )
    return {f"{name}, %": percent(statistics.mean(v)) for name, v in shares.items()}


def _fine_tuned(trained: Trained, images: Dataset, known: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the predictions of the start, trained on with the labels, for all images."""
    assert trained.folder is not None
    with tempfile.TemporaryDirectory() as folder:
        done = widefield.pretrain(
            {"x": images.images[known], "class": images.labels["class"][known]},
            out=Path(folder) / "run",
            method="supervised",
            init=str(trained.folder / "init"),
            seed=trained.seed,
            batch_size=BATCH,
            quiet=True,
            **trained.arm.about,
        )
        state = checkpoint.load(done.run / "checkpoints" / "last.pt", torch.device("cpu"))
    weights, name = state["model"], "method.classifiers.0"
    logits = features(done.encoder, images) @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
    guess: NDArray[np.int64] = logits.argmax(1).numpy()
    return guess


START_LABELS = cpu_study(
    id="five-labels",
    question="Five labels a class: is an encoder best frozen, adapted or fine-tuned?",
    tiny="fine-tuning takes half a minute",
    cpu=Scale(images=20_000, epochs=48, minutes=30),
    arms={
        target: Arm(
            data=TARGETS[target],
            settings=BEFORE,
            start=STARTS["labels"],
            images=2000,
            epochs=12 / 48,
            about=BEFORE | tuning,
        )
        for target, tuning in TUNING.items()
    },
    measure=five_labels,
)

PAIRS = tuple((start, data) for start in STARTS for data in ("cifar10+digits", "mnist", "photos"))


def _last_epoch(run: Path) -> Path:
    """Return the folder of the encoder of the last epoch, which a run may not hand over."""
    return max((run / "checkpoints").glob("epoch-*"))


def frozen_and_adapted(trained: Trained) -> dict[str, Encoder]:
    """Return the start and the result of a run, also where the run judged it worse."""
    assert trained.folder is not None
    start, end = load_encoder(trained.folder / "init"), load_encoder(_last_epoch(trained.folder))
    share = trained_share(start, end, trained.train_set(), device=trained.device)
    return {"frozen": start, "adapted": averaged(start, end, share)}


def kept(trained: Trained) -> Measured:
    """Return the accuracy of every task of the start and of the result, pooled and wide."""
    assert trained.folder is not None
    sets, found = trained.test_sets(), verdicts(trained.folder)
    for name, encoder in frozen_and_adapted(trained).items():
        with tempfile.TemporaryDirectory() as folder:
            save_encoder(encoder, folder)
            measured = probes(replace(trained, folder=Path(folder)), sets)
        found |= {f"{name}: {measure}": value for measure, value in measured.items()}
    return found


def _least_gain(runs: SeedRuns) -> float:
    """Return the smallest of adapted minus frozen of every arm, task and readout."""
    return min(
        values[f"adapted: {measure}"] - values[f"frozen: {measure}"]
        for values in runs.values()
        for measure in (key.removeprefix("frozen: ") for key in values if "frozen: " in key)
    )


START_KEPT = cpu_study(
    id="keeping-starts",
    question="Does a run from an encoder with the defaults lose what the encoder knew?",
    cpu=Scale(images=10_000, epochs=48, minutes=60, probed=2000),
    arms={
        f"{start} @ {data}": Arm(
            data=data,
            settings={"method": "view-contrast", "views": "moderate"},
            start=STARTS[start],
            images=2000,
            epochs=6 / 48,
        )
        for start, data in PAIRS
    },
    measure=kept,
    conclusion=(
        "Wide features lose nothing, and both starts gain most on MNIST. Pooled features lose "
        "between one and two points of the planted digit while they gain class accuracy, although "
        "a linear map of them explains 98 % of the variance of the initial ones: the digit is in "
        "directions of little variance. A run with labels of the digit hands over the start."
    ),
    findings=(
        Finding(
            id="keeping-starts",
            criterion="at the defaults, no accuracy of six pairs of start and data, pooled or "
            "wide, is more than a point lower after a run than before",
            value=lambda runs: _least_gain(runs) + 1,
        ),
    ),
)


AVERAGES = (0.25, 0.5, 0.75, 1.0)


def averages(trained: Trained) -> Measured:
    """Return scores of averages of start and last epoch, on validation images.

    These are the class accuracy, and the share of the start's features that a linear map explains.
    """
    assert trained.folder is not None
    sets, found = trained.choice_sets(), Measured()
    start = load_encoder(trained.folder / "init")
    end = load_encoder(_last_epoch(trained.folder))
    before = features(start, sets[1])
    for share in (0.0, *AVERAGES):
        encoder = averaged(start, end, share)
        kept = explained(before, features(encoder, sets[1]))
        assert kept is not None
        scores = with_neighbors(encoder, sets) | {"R²": round(kept.r2, 3)}
        found |= {f"{share:g}: {measure}": value for measure, value in scores.items()}
    return found


START_AVERAGES = cpu_study(
    id="start-averages",
    question="Which learning rate and which average of initial and trained weights gain most?",
    cpu=Scale(images=10_000, epochs=48, seeds=(0,), minutes=40, probed=2000, validation=2000),
    arms={
        f"{start} @ {data}, lr x {scale:g}": Arm(
            data=data,
            settings={"method": "view-contrast", "views": "moderate", "init_lr_scale": scale},
            start=STARTS[start],
            images=2000,
            epochs=6 / 48,
        )
        for start, data in PAIRS
        for scale in (0.01, 0.03, 0.1)
    },
    measure=averages,
    conclusion=(
        "At a larger rate these weak starts gain more, and all averages keep more than 0.8 of the "
        "initial features, so that they are trained whole. The default is 0.03: no larger rate was "
        "tried with a strong start."
    ),
)

STUDIES = [START_TABLE, START_CHOICES, START_LABELS, START_KEPT, START_AVERAGES]
