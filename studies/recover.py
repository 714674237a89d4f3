"""Whether a feature that pooling hides comes back into the pooled features, in the weights."""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from studies.study import TINY, Arm, Finding, Measured, Scale, cpu_study, difference
from studies.trained import Trained, accuracies, by_task
from widefield.core.hardware import choose_precision
from widefield.data import Dataset
from widefield.encoders import Encoder
from widefield.inference.open_encoder import load, open_encoder
from widefield.inference.splits import split_by_hash
from widefield.probes import fit_linear
from widefield.train.recover import train_to_predict
from widefield.workflows.recover import default_epochs, recover, standardized_logits

TASK = "digits"
WAYS = ("before", "wide", "digits", "all", "no request", "shuffled labels")


def recovered(trained: Trained) -> Measured:
    """Return the accuracies after an encoder is trained further in one way, and the time."""
    assert trained.folder is not None
    way, began = trained.arm.about["way"], time.process_time()
    encoder = _encoder(trained, trained.folder, way)
    seconds = time.process_time() - began
    scores = by_task(accuracies(encoder, trained.test_sets()))
    if way not in ("digits", "all"):
        return scores
    return {
        **scores,
        "time, % of the run": round(100 * seconds / trained.cost["processor seconds"]),
    }


def _encoder(trained: Trained, folder: Path, way: str) -> nn.Module:
    if way in ("before", "wide"):
        return load(folder, features="pooled" if way == "before" else "wide")
    if way in ("digits", "all"):
        with tempfile.TemporaryDirectory() as out:
            feature = None if way == "all" else way
            return recover(
                folder, feature=feature, out=f"{out}/new", seed=trained.seed, quiet=True
            ).encoder
    data = split_by_hash(trained.train_set()).train
    wanted = _shuffled_directions(folder, data, trained.seed)
    return _control(trained, load(folder), data, wanted, weight=float(way != "no request"))


def _shuffled_directions(folder: Path, dataset: Dataset, seed: int) -> Tensor:
    """Return the directions that predict shuffled labels of the planted feature."""
    wide = open_encoder(folder, "wide").features(dataset.images)
    y = torch.from_numpy(np.random.default_rng(seed).permutation(dataset.labels[TASK]))
    classes, labels = {TASK: len(dataset.classes[TASK])}, {TASK: y.to(wide.device)}
    return standardized_logits(wide, fit_linear(wide, labels, wide, labels, classes=classes)[TASK])


def _control(
    trained: Trained, encoder: Encoder, dataset: Dataset, wanted: Tensor, *, weight: float
) -> Encoder:
    """Train as `recover` does, for shuffled labels or with weight 0."""
    return train_to_predict(
        encoder,
        dataset.images,
        wanted,
        weight=weight,
        epochs=default_epochs(trained.scale.epochs),
        seed=trained.seed,
        device=trained.device,
        precision=choose_precision("auto", trained.device),
    )


RECOVER = cpu_study(
    id="recover",
    question="Does a feature that pooling hides come back into the pooled features?",
    tiny=replace(TINY, arms=2),
    cpu=Scale(images=5000, epochs=18, minutes=20, settings={"method": "view-contrast"}),
    arms={way: Arm(data="cifar10+digits", compared=True, about={"way": way}) for way in WAYS},
    measure=recovered,
    findings=(
        Finding(
            id="recover digits",
            criterion="the digit is at least 37.5 points higher, from 37.5 to 75",
            value=difference("digits, %", "digits", "before"),
            at_least=37.5,
        ),
        Finding(
            id="recover class",
            criterion="the class loses at most a point",
            value=lambda runs: runs["digits"]["class, %"] - runs["before"]["class, %"] + 1,
        ),
        Finding(
            id="recover control",
            criterion="the same steps without the request gain at most 3 points of the digit",
            value=lambda runs: 3 + runs["before"]["digits, %"] - runs["no request"]["digits, %"],
        ),
    ),
    conclusion=(
        "`widefield recover` trains with one plain view and two linear regressions: to the former "
        "pooled features, and to what the wide readout has beside them. Directions that predict a "
        "label recover most of the feature. All directions, without labels, recover less of it, "
        "and the class increases. Directions that predict shuffled labels recover a fifth of what "
        "those of the digits do: they are arbitrary directions of the wide features. Continuing "
        "with the contrastive loss, with rows for residual pixels, or with batches within "
        "clusters, did not recover the digit."
    ),
)

STUDIES = [RECOVER]
