"""Feature dropout as a mechanism for learning robust features (Tamkin et al. 2022)."""

from collections.abc import Callable
from dataclasses import replace

from studies.study import TINY, Arm, Finding, Scale, SeedRuns, Study, difference
from studies.trained import probes

PAPER = {"recipe": "feature-dropout", "encoder": "resnet18", "precision": "32"}
FIRST = replace(TINY, arms=3)
CPU = Scale(
    images=2000,
    epochs=2,
    minutes=20,
    settings={"method": "simclr", "image_size": 20, "batch_size": 32, "lr": 4e-3},
)
GPU = Scale(images=None, epochs=200, encoder="resnet18", minutes=3000, settings=PAPER)

DATA = {
    "CIFAR only": "cifar10",
    "shapes": "cifar10+shapes:as-published:fresh",
    "digits": "cifar10+digits:fresh",
    "letters": "cifar10+letters:fresh",
}
PLANTS = ("shapes", "digits", "letters")
EXPERT, LEARNED, MASKED = "expert:feature-dropout", "viewmaker", "mask-viewmaker"
CHANCE = {  # percent
    "class": 10.0,
    "shapes": 100 / 3,
    "digits": 10.0,
    "letters": 100 / 26,
    "background": 100 / 3,
}


def _arms(*views: str, data: tuple[str, ...] = tuple(DATA)) -> dict[str, Arm]:
    """Return an encoder for each of the data under each of the views."""
    arms: dict[str, Arm] = {}
    for name in data:
        for policy in views:
            budget = 0.1 if name == "letters" else 0.05
            learned = {} if policy == EXPERT else {"viewmaker_budget": budget}
            arms[f"{name}, {policy}"] = Arm(data=DATA[name], settings={"views": policy, **learned})
    return arms


def _untrained() -> dict[str, Arm]:
    return {f"{name}, untrained": Arm(data=data, settings=None) for name, data in DATA.items()}


def _above_chance(task: str, *arms: str) -> Callable[[SeedRuns], bool]:
    """Return whether the accuracy of one of the arms is above chance by a quarter of it."""
    return lambda runs: any(runs[arm][f"{task}, %"] > 1.25 * CHANCE[task] for arm in arms)


def _at_least(
    id: str, data: str, task: str, better: str, worse: str, points: float, *, margin: float = 0.0
) -> Finding:
    """Return the finding that views are better than others for a task by a number of points.

    With a margin, that they are worse by less than it.
    """
    a, b = f"{data}, {better}", f"{data}, {worse}"
    value = difference(f"{task}, %", a, b)
    by = f"less than {margin:g} points lower" if margin else f"at least {points:g} points higher"
    return Finding(
        id=id,
        criterion=f"{task} accuracy is {by} with {better} than with {worse}",
        value=(lambda runs: value(runs) + margin) if margin else value,
        at_least=points,
        valid=_above_chance(task, a, b),
    )


T1 = Study(
    id="FD-T1",
    question="Which views leave both the image's class and the planted object in the encoder?",
    published="viewmaker and expert, class: CIFAR only 84.5 and 86.2, shapes 79.8 and 76.0, "
    "digits 69.3 and 58.8, letters 71.9 and 74.8; object: 100 and 100, 94.3 and 86.7, "
    "96.9 and 94.1",
    scales={"tiny": FIRST, "cpu": CPU, "gpu": GPU},
    arms=_arms(LEARNED, EXPERT) | _untrained(),
    measure=probes,
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
        "At small scale two epochs raise class accuracy a few points above that of an untrained "
        "encoder. Letters are at chance with all views. Shapes are as accurate as in an untrained "
        "encoder, so what holds of them says little. In every seed the viewmaker leaves more of "
        "the digit and less of the class than expert views. The wide readout finds the digit "
        "whatever the views, in the untrained encoder too."
    ),
)

T3 = Study(
    id="FD-T3",
    question="What is lost if the viewmaker cannot change the planted object?",
    published="viewmaker and mask-viewmaker, class: shapes 79.8 and 26.0, digits 69.3 and 50.7, "
    "letters 71.9 and 23.2; object: 100 and 95.8, 94.3 and 95.0, 96.9 and 71.8",
    scales={"tiny": FIRST, "cpu": replace(CPU, seeds=(0, 1, 2, 3)), "gpu": GPU},
    arms=_arms(LEARNED, MASKED, data=PLANTS),
    measure=probes,
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
    images=1500, epochs=6, minutes=15, settings={"method": "simclr", "batch_size": 32, "lr": 4e-3}
)
AUDIO_GPU = Scale(
    images=None, epochs=200, encoder="resnet18", minutes=60, settings={**PAPER, "batch_size": 128}
)


def _suppressed(runs: SeedRuns) -> float:
    """Return the points of digit accuracy that a background costs, beyond an untrained encoder's.

    Of the views that it costs less.
    """

    def lost(views: str) -> float:
        return difference("class, %", f"speech, {views}", f"both, {views}")(runs)

    return min(lost(SPECTRAL), lost(WAVEFORM)) - lost("untrained")


T2 = Study(
    id="FD-T2",
    question="What do spectral and waveform views leave of speech and of its background?",
    published="viewmaker, spectral and waveform: speech only 92.4, 97.0 and 76.7, background only "
    "100, 32.64 and 100, both: speech 60.8, 10.1 and 53.6, background 97.0, 47.2 and 43.3",
    scales={"tiny": AUDIO_TINY, "cpu": AUDIO_CPU, "gpu": AUDIO_GPU},
    arms={
        f"{name}, {views}": Arm(
            data=data, settings=None if views == "untrained" else {"views": views}
        )
        for name, data in AUDIO.items()
        for views in (SPECTRAL, WAVEFORM, "untrained")
    },
    measure=probes,
    findings=(
        Finding(
            id="FD-T2 speech only",
            criterion="digit accuracy is at least 5 points higher with spectral views",
            value=difference("class, %", f"speech, {SPECTRAL}", f"speech, {WAVEFORM}"),
            at_least=5.0,
            valid=_above_chance("class", f"speech, {SPECTRAL}", f"speech, {WAVEFORM}"),
        ),
        Finding(
            id="FD-T2 background only",
            criterion="background accuracy is at least 10 points higher with waveform than "
            "spectral views",
            value=difference("background, %", f"background, {WAVEFORM}", f"background, {SPECTRAL}"),
            at_least=10.0,
            valid=_above_chance("background", f"background, {SPECTRAL}", f"background, {WAVEFORM}"),
        ),
        Finding(
            id="FD-T2 both",
            criterion="the background lowers digit accuracy at least 5 points more with spectral "
            "and with waveform views than that of an untrained encoder",
            value=_suppressed,
            at_least=5.0,
            valid=_above_chance("class", f"speech, {SPECTRAL}", f"speech, {WAVEFORM}"),
        ),
    ),
)


STUDIES = [T1, T2, T3]
