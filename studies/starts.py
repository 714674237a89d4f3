"""What going on from an encoder gains over the encoder as it is, and over starting anew."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from studies.study import Arm, Finding, Measured, Scale, SeedRuns, cpu_study
from studies.trained import (
    Trained,
    features,
    probes,
    with_neighbors,
)
from widefield.encoders import Encoder, averaged, load_encoder, save_encoder
from widefield.probes.explained import explained, trained_share

STARTS = {
    "labels": Arm(data="cifar100", settings={"method": "supervised"}, epochs=1 / 6),
    "S-DIET": Arm(data="cifar100", settings={"method": "s-diet"}, epochs=1 / 6),
}
"""How an encoder was trained on CIFAR-100, in 8 epochs; random weights have no start."""


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


PAIRS = tuple((start, data) for start in STARTS for data in ("cifar10+digits", "mnist", "photos"))


def last_epoch(run: Path) -> Path:
    """Return the folder of the encoder of the last epoch, which a run may not hand over."""
    return max((run / "checkpoints").glob("epoch-*"))


def frozen_and_adapted(trained: Trained) -> dict[str, Encoder]:
    """Return the start and the result of a run, also where the run judged it worse."""
    assert trained.folder is not None
    start, end = load_encoder(trained.folder / "init"), load_encoder(last_epoch(trained.folder))
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
            compared=True,
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
    end = load_encoder(last_epoch(trained.folder))
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

STUDIES = [START_KEPT, START_AVERAGES]
