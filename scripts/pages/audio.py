"""Accuracies by views of sounds: docs/audio.md."""

import statistics
from typing import Any

from pages.format import mean_percent, ratio, read, table, whole
from widefield.config.defaults import DEFAULT_METHOD

_ROWS = {
    "specaug": "`specaug`",
    "waveaug": "`waveaug`",
    "viewmaker": "`viewmaker`",
    "pixels": "spectrogram's pixels",
    "untrained": "untrained encoder",
    "ceiling": "supervised ceiling",
}
_DATA = {"speech": "speech alone", "background": "background alone", "both": "both"}
_TASKS = {"class": "digit", "speaker": "speaker", "background": "background"}
_PUBLISHED = {
    ("speech", "specaug"): ("97.0", ""),
    ("speech", "waveaug"): ("76.7", ""),
    ("speech", "viewmaker"): ("92.4", ""),
    ("background", "specaug"): ("", "32.6"),
    ("background", "waveaug"): ("", "100.0"),
    ("background", "viewmaker"): ("", "100.0"),
    ("both", "specaug"): ("10.1", "47.2"),
    ("both", "waveaug"): ("53.6", "43.3"),
    ("both", "viewmaker"): ("60.8", "97.0"),
}
"""Speech and background of Feature Dropout's table 2, whose views of these names are stronger."""


def _runs(data: str, views: str) -> list[dict[str, Any]]:
    runs = read("audio")["runs"].values()
    return [run for run in runs if (run["data"], run["views"]) == (data, views)]


def audio() -> str:
    """Return accuracies by data and views, beside the published ones; no row without a run."""
    rows = []
    for data, shown in _DATA.items():
        for views, name in _ROWS.items():
            runs = _runs(data, views)
            if not runs:
                continue
            cells = [
                mean_percent([run["accuracy"][task] for run in runs])
                if task in runs[0]["accuracy"]
                else ""
                for task in _TASKS
            ]
            seconds = [run["processor_seconds"] for run in runs if "processor_seconds" in run]
            cost = whole(statistics.mean(seconds)) if seconds else ""
            published = _PUBLISHED.get((data, views), ("", ""))
            rows.append([shown, name, str(len(runs)), cost, *cells, *published])
    head = ["trained and scored on", "views", "seeds", "processor seconds"]
    head += [f"{task}, %" for task in _TASKS.values()]
    return table([*head, "published: speech, %", "published: background, %"], rows)


def speeds() -> str:
    """Say how fast each policy draws a view."""
    runs = {r["views"]: r for r in read("audio")["runs"].values() if r["data"] == "speed"}
    parts = [f"`{name}` {whole(run['times_real_time'])}" for name, run in runs.items()]
    return (
        "Seconds of sound at 8 kHz that one processor augments per second, including the "
        f"spectrogram: {', '.join(parts)}."
    )


def suppressed() -> str:
    """Say what a background costs the digit, with each of the views and baselines."""
    parts = []
    for views in ("specaug", "waveaug", "viewmaker", "pixels", "untrained"):
        alone, both = (
            [r["accuracy"]["class"] for r in _runs(d, views)] for d in ("speech", "both")
        )
        if alone and both:
            name = _ROWS[views]
            parts.append(f"{name} {mean_percent(alone)} to {mean_percent(both)} %")
    return f"Digit accuracy, from speech alone to speech with a background: {'; '.join(parts)}."


def waits() -> str:
    """Say how much of a run is a wait for data, and how right its plan was."""
    parts = []
    for name in ("sounds", "windows"):
        case = read("plan_check")["cases"][f"{DEFAULT_METHOD}, {name}"]
        wait = statistics.median(turn["measured"]["data_wait"] for turn in case["turns"])
        memory, seconds = (ratio(case["ratio"][k]) for k in ("host_bytes", "epoch_seconds"))
        parts.append(
            f"{name}: {100 * wait:.1f} % of the time is spent waiting for data; memory is {memory} "
            f"times and an epoch {seconds} times the estimate of `widefield plan`"
        )
    return f"The default method and encoder on synthetic {'. On synthetic '.join(parts)}."
