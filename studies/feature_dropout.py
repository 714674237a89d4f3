"""Feature dropout as a mechanism for learning robust features (Tamkin et al. 2022).

Accuracies are those of the paper's probe, on features before pooling.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from studies.dropout_protocol import EPOCHS, score_sgd
from studies.study import (
    TINY,
    Arm,
    Finding,
    Gate,
    Measured,
    Scale,
    SeedRuns,
    Study,
    at_rates,
    difference,
    percent,
)
from studies.trained import Trained
from widefield.encoders import FeatureMap
from widefield.inference.run_views import run_views
from widefield.probes.features import image_batch
from widefield.views import AugmentContext
from widefield.views.simple import Identity

PAPER = {"recipe": "feature-dropout", "encoder": "resnet18", "precision": "32"}
FIRST = replace(TINY, arms=3)
CPU = Scale(
    images=1000,
    epochs=30,
    seeds=(0, 1, 2, 3, 4),
    rate_seeds=1,
    minutes=150,
    settings={"method": "simclr", "image_size": 16, "batch_size": 32, "lr": 4e-3},
)
GPU = Scale(images=47_000, epochs=200, encoder="resnet18", minutes=3000, settings=PAPER)

DATA = {
    "CIFAR only": "cifar10",
    "shapes": "cifar10+shapes:as-published:fresh",
    "digits": "cifar10+digits:fresh",
    "letters": "cifar10+letters:size=1.2:color=fixed:fresh",
}
CPU_DRAWINGS = 10
"""How often the paper's probe augments each image on a CPU; in every of its epochs on a GPU."""
PLANTS = ("shapes", "digits", "letters")
PROBE = "before pooling, %"
GATE = Gate(
    points=8.0, measures=tuple(f"{task} {PROBE}" for task in ("class", *PLANTS, "background"))
)

EXPERT, LEARNED, MASKED = "expert:feature-dropout", "viewmaker", "mask-viewmaker"


@lru_cache(maxsize=1)
def linear_evaluation(trained: Trained) -> tuple[Measured, Measured]:
    """Return the accuracy of every task by the paper's probe on test and on validation images.

    In percent. One probe is fitted for both, because fitting is a large part of a run.
    """
    train, test = trained.test_sets()
    held_out = [images.first_read() for images in (test, trained.validation_set())]
    folder = trained.folder
    views = (Identity() if folder is None else run_views(folder)).to(trained.device)

    def draw(
        index: NDArray[np.int64], epoch: int, generator: Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        pixels, labels = train.read(index, epoch + 1)
        mask = torch.from_numpy(train.masks(index, epoch + 1)).permute(0, 3, 1, 2)
        context = AugmentContext(mask=mask.to(trained.device))
        x = image_batch(pixels, trained.device)
        with torch.no_grad():
            (view,) = views(x, 1, generator, context)
        return view, {k: torch.from_numpy(y).to(trained.device) for k, y in labels.items()}

    known = train.first_read()
    found = score_sgd(
        FeatureMap(trained.encoder).eval(),
        (known.images, {k: torch.from_numpy(y) for k, y in known.labels.items()}),
        (
            np.concatenate([images.images for images in held_out]),
            {
                k: torch.from_numpy(np.concatenate([images.labels[k] for images in held_out]))
                for k in known.labels
            },
        ),
        classes={task: len(names) for task, names in train.classes.items()},
        draw=draw,
        device=trained.device,
        drawings=CPU_DRAWINGS if trained.device.type == "cpu" else EPOCHS,
        seed=trained.seed,
    )
    rows = slice(0, len(test)), slice(len(test), None)
    of_test, of_validation = (
        {f"{task} {PROBE}": percent(outcome.values[part].mean()) for task, outcome in found.items()}
        for part in rows
    )
    return of_test, of_validation


def scored(trained: Trained) -> Measured:
    """Return the accuracies on the test images."""
    return linear_evaluation(trained)[0]


def chosen(trained: Trained) -> Measured:
    """Return the accuracies on validation images."""
    return linear_evaluation(trained)[1]


def _arms(*views: str, data: tuple[str, ...] = tuple(DATA)) -> dict[str, Arm]:
    """Return an encoder for each of the data under each of the views."""
    arms: dict[str, Arm] = {}
    for name in data:
        for policy in views:
            budget = 0.1 if name == "letters" else 0.05
            learned = {} if policy == EXPERT else {"viewmaker_budget": budget}
            arms[f"{name}, {policy}"] = Arm(data=DATA[name], settings={"views": policy, **learned})
    return at_rates(arms)


def _untrained(data: tuple[str, ...] = tuple(DATA)) -> dict[str, Arm]:
    return {f"{name}, untrained": Arm(data=DATA[name], settings=None) for name in data}


def _at_least(
    id: str, data: str, task: str, better: str, worse: str, points: float, *, margin: float = 0.0
) -> Finding:
    """Return the finding that views are better than others for a task by a number of points.

    With a margin, that they are worse by less than it.
    """
    a, b = f"{data}, {better}", f"{data}, {worse}"
    value = difference(f"{task} {PROBE}", a, b)
    by = f"less than {margin:g} points lower" if margin else f"at least {points:g} points higher"
    return Finding(
        id=id,
        criterion=f"{task} accuracy is {by} with {better} than with {worse}",
        value=(lambda runs: value(runs) + margin) if margin else value,
        at_least=points,
        trained=(a, b),
    )


T1 = Study(
    id="FD-T1",
    question="Which views leave both the image's class and the planted object in the encoder?",
    published="viewmaker and expert, class: CIFAR only 84.5 and 86.2, shapes 79.8 and 76.0, "
    "digits 69.3 and 58.8, letters 71.9 and 74.8; object: 100 and 100, 94.3 and 86.7, "
    "96.9 and 94.1",
    scales={"tiny": FIRST, "cpu": CPU, "gpu": GPU},
    arms=_arms(LEARNED, EXPERT) | _untrained(),
    gate=GATE,
    measure=scored,
    validate=chosen,
    findings=(
        _at_least("FD-T1 CIFAR only", "CIFAR only", "class", EXPERT, LEARNED, 1.0),
        _at_least("FD-T1 shapes", "shapes", "class", LEARNED, EXPERT, 1.5),
        _at_least("FD-T1 digits", "digits", "class", LEARNED, EXPERT, 3.0),
        _at_least("FD-T1 letters", "letters", "class", EXPERT, LEARNED, 1.0),
        _at_least("FD-T1 shapes, object", "shapes", "shapes", LEARNED, EXPERT, 0.0, margin=5.0),
        _at_least("FD-T1 digits, object", "digits", "digits", LEARNED, EXPERT, 3.0),
        _at_least("FD-T1 letters, object", "letters", "letters", LEARNED, EXPERT, 1.0),
    ),
    conclusion=(
        "After 30 epochs on 1,000 images of 16 pixels, the encoder trained with viewmaker views "
        "predicts the planted digit, of which expert views leave less than an untrained network "
        "has, and more of the letter. Of shapes neither kind of views is shown to keep more. The "
        "class is predicted 2 to 6 points worse with the viewmaker where nothing, digits or "
        "letters are planted. That it is predicted better where shapes or digits are planted, as "
        "published, does not appear."
    ),
)

T3 = Study(
    id="FD-T3",
    question="What is lost if the viewmaker cannot change the planted object?",
    published="viewmaker and mask-viewmaker, class: shapes 79.8 and 26.0, digits 69.3 and 50.7, "
    "letters 71.9 and 23.2; object: 100 and 95.8, 94.3 and 95.0, 96.9 and 71.8",
    scales={"tiny": FIRST, "cpu": CPU, "gpu": GPU},
    arms=_arms(LEARNED, MASKED, data=PLANTS) | _untrained(PLANTS),
    gate=GATE,
    measure=scored,
    validate=chosen,
    findings=(
        _at_least("FD-T3 shapes", "shapes", "class", LEARNED, MASKED, 5.0),
        _at_least("FD-T3 digits", "digits", "class", LEARNED, MASKED, 2.0),
        _at_least("FD-T3 letters", "letters", "class", LEARNED, MASKED, 5.0),
        _at_least("FD-T3 shapes, object", "shapes", "shapes", MASKED, LEARNED, 0.0, margin=8.0),
        _at_least("FD-T3 digits, object", "digits", "digits", MASKED, LEARNED, 0.0, margin=5.0),
        _at_least("FD-T3 letters, object", "letters", "letters", LEARNED, MASKED, 3.0),
    ),
)


SPEECH, SOUND, BOTH = "fsdd", "fsdd+background:low=-20:high=-20", "fsdd+background:as-published"
AUDIO = {"speech": SPEECH, "background": SOUND, "both": BOTH}
SPECTRAL, WAVEFORM = "specaug:published", "waveaug:published"
AUDIO_TINY = replace(FIRST, settings={"batch_size": 24, "projector_width": 32})
AUDIO_CPU = Scale(
    images=1500,
    epochs=6,
    seeds=(0, 1, 2, 3, 4),
    minutes=60,
    validation=500,
    settings={"method": "simclr", "batch_size": 32, "lr": 4e-3},
)
AUDIO_GPU = Scale(
    images=1900,
    epochs=200,
    encoder="resnet18",
    minutes=180,
    validation=500,
    settings={**PAPER, "batch_size": 128},
)
SPECTRAL_SPEECH, WAVEFORM_SPEECH = (f"speech, {views}" for views in (SPECTRAL, WAVEFORM))
SPECTRAL_SOUND, WAVEFORM_SOUND = (f"background, {views}" for views in (SPECTRAL, WAVEFORM))


def _suppressed(runs: SeedRuns) -> float:
    """Return the points of digit accuracy that a background costs, beyond an untrained encoder's.

    Of the views that it costs less.
    """

    def lost(views: str) -> float:
        return difference(f"class {PROBE}", f"speech, {views}", f"both, {views}")(runs)

    return min(lost(SPECTRAL), lost(WAVEFORM)) - lost("untrained")


T2 = Study(
    id="FD-T2",
    question="What do spectral and waveform views leave of speech and of its background?",
    published="viewmaker, spectral and waveform: speech only 92.4, 97.0 and 76.7, background only "
    "100, 32.64 and 100, both: speech 60.8, 10.1 and 53.6, background 97.0, 47.2 and 43.3",
    scales={"tiny": AUDIO_TINY, "cpu": AUDIO_CPU, "gpu": AUDIO_GPU},
    arms=at_rates(
        {
            f"{name}, {views}": Arm(
                data=data, settings=None if views == "untrained" else {"views": views}
            )
            for name, data in AUDIO.items()
            for views in (SPECTRAL, WAVEFORM, "untrained")
        }
    ),
    gate=replace(GATE, measures=(*GATE.measures, f"speaker {PROBE}")),
    measure=scored,
    validate=chosen,
    findings=(
        Finding(
            id="FD-T2 speech only",
            criterion="digit accuracy is at least 5 points higher with spectral views",
            value=difference(f"class {PROBE}", SPECTRAL_SPEECH, WAVEFORM_SPEECH),
            at_least=5.0,
            trained=(SPECTRAL_SPEECH, WAVEFORM_SPEECH),
        ),
        Finding(
            id="FD-T2 background only",
            criterion="background accuracy is at least 10 points higher with waveform than "
            "spectral views",
            value=difference(f"background {PROBE}", WAVEFORM_SOUND, SPECTRAL_SOUND),
            at_least=10.0,
            trained=(SPECTRAL_SOUND, WAVEFORM_SOUND),
        ),
        Finding(
            id="FD-T2 both",
            criterion="the background lowers digit accuracy at least 5 points more with spectral "
            "and with waveform views than that of an untrained encoder",
            value=_suppressed,
            at_least=5.0,
            trained=(SPECTRAL_SPEECH, WAVEFORM_SPEECH),
        ),
    ),
    conclusion=(
        "The published order of the two views for digits does not appear: accuracies of the digit "
        "are higher with waveform views. Those of the speaker are lower with these than in the "
        "untrained network, and higher with spectral views. The background alone is predicted "
        "nearly without errors with either of the views. With both, the background lowers the "
        "accuracy of the digit more than in the untrained network with either of the views, as "
        "published; that it is 5 points or more was not shown. The learning rate of an arm was "
        "chosen by the task in which it is furthest above the untrained network, on validation "
        "images."
    ),
)


STUDIES = [T1, T2, T3]
