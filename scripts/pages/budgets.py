"""Short runs: benchmarks/NOTEBOOK.md and docs/budgets.svg."""

import math
import statistics
from collections.abc import Iterable
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pages.drawing import FAINT, INK, style, svg_text
from pages.format import percent, read, spread, table, whole
from widefield.config.defaults import DEFAULT_METHOD, LONG_METHOD, method_for

Run = dict[str, Any]
OURS = (DEFAULT_METHOD, LONG_METHOD)
FLOORS = ("pixels", "untrained")
SAME_TIME = 1.2
"""The default is compared with a run by its best one that took so many times as long, or less."""
COLORS = {
    "view-contrast": "#0b5fa5",
    "row-contrast": "#2ea8e0",
    "s-diet": "#c2410c",
    "diet": "#a16207",
    "byol": "#7c3aed",
    "moco": "#be185d",
    "simclr": "#15803d",
    "barlow-twins": "#57534e",
}


def _all() -> list[Run]:
    return [run for run in read("budgets")["runs"].values() if "choice" not in run]


def _trained() -> list[Run]:
    return [run for run in _all() if run["images"] is not None]


def _places(runs: Iterable[Run]) -> list[tuple[str, int]]:
    """Return all (encoder, images), in the order of the encoders' first runs."""
    runs = list(runs)
    order = list(dict.fromkeys(run["encoder"] for run in runs))
    found = {(run["encoder"], run["images"]) for run in runs}
    return sorted(found, key=lambda place: (order.index(place[0]), place[1]))


def _series(encoder: str, images: int) -> dict[str, list[list[Run]]]:
    """Return method -> its runs, those of other seeds together, from shorter to longer."""
    series: dict[str, dict[int, list[Run]]] = {}
    for run in _trained():
        if (run["encoder"], run["images"]) == (encoder, images):
            series.setdefault(run["method"], {}).setdefault(run["epochs"], []).append(run)
    in_order = [method for method in COLORS if method in series]
    return {m: [series[m][epochs] for epochs in sorted(series[m])] for m in in_order}


def _mean(runs: Iterable[Run], name: str) -> float:
    return statistics.mean(run[name] for run in runs)


def _floor(encoder: str, kind: str, name: str) -> float:
    """Return the score of a floor; of an untrained encoder that of its better start."""
    runs = [r for r in _all() if r["encoder"] == encoder and r["method"].startswith(kind)]
    starts = {run["method"] for run in runs}
    return max(_mean([run for run in runs if run["method"] == start], name) for start in starts)


def budgets() -> str:
    """Return the accuracy of every method, for nearly equal time, and of the baselines."""
    rows = []
    for encoder, images in _places(_trained()):
        series = _series(encoder, images)
        floors = [percent(_floor(encoder, kind, "linear")) for kind in FLOORS]
        for number in range(max(map(len, series.values()))):
            cells = [_cell(series.get(m, []), number) for m in COLORS]
            rows.append([encoder, whole(images), *cells, *floors])
    return table(["encoder", "images", *COLORS, *FLOORS], rows)


def _cell(runs: list[list[Run]], number: int) -> str:
    """Return the class score of a method's run, and its seconds."""
    if number >= len(runs):
        return ""
    own = runs[number]
    score = spread([100 * run["linear"] for run in own])
    return f"{score} ({whole(_mean(own, 'processor_seconds'))} s)"


def gaps() -> str:
    """Return the smallest gap between the default and every other method in similar time."""
    said = []
    for encoder, images in _places(_trained()):
        series = _series(encoder, images)
        own = [
            runs
            for method in OURS
            for runs in series.pop(method, [])
            if method_for(epochs=runs[0]["epochs"], init=None) == method
        ]
        gaps: dict[str, float] = {}
        for method, runs in series.items():
            for other in runs:
                most = SAME_TIME * _mean(other, "processor_seconds")
                held = [mine for mine in own if _mean(mine, "processor_seconds") <= most]
                if held:
                    best = max(_mean(mine, "linear") for mine in held)
                    name = f"{method}, {_epochs(other)}"
                    gaps[name] = 100 * (best - _mean(other, "linear"))
        worst = min(gaps, key=lambda name: gaps[name])
        said.append(f"{encoder}, {whole(images)} images: {gaps[worst]:+.1f} ({worst})")
    return (
        "Smallest signed difference between the default and another method's run, in points, with "
        f"at most a fifth more time: {'; '.join(said)}. {_between()}"
    )


def _between() -> str:
    """Return the gap to runs whose time lies between two lengths of the default."""
    said = []
    for encoder, images in _places(_trained()):
        series = _series(encoder, images)
        own = [(_mean(runs, "processor_seconds"), runs) for runs in series[DEFAULT_METHOD]]
        for other in series.get("simclr", []):
            seconds = _mean(other, "processor_seconds")
            before = [point for point in own if point[0] <= seconds]
            after = [point for point in own if point[0] > seconds]
            if before and after:
                (t0, first), (t1, second) = before[-1], after[0]
                share = math.log(seconds / t0) / math.log(t1 / t0)
                low, high = _mean(first, "linear"), _mean(second, "linear")
                gap = 100 * (low + share * (high - low) - _mean(other, "linear"))
                said.append(f"{gap:+.1f} for {encoder}, {whole(images)} images, {_epochs(other)}")
    return (
        "Where SimCLR's time lies between two lengths of the default, interpolated in the "
        f"logarithm of time: {'; '.join(said)}."
    )


def chosen() -> str:
    """Return the multiple of its default rate that each method uses."""
    factors = read("budgets")["chosen_factor"]
    said = [f"{method} x {factor:.2g}" for method, factor in sorted(factors.items())]
    return f"Learning rates, as multiples of the method's default: {', '.join(said)}."


def _epochs(runs: list[Run]) -> str:
    epochs = runs[0]["epochs"]
    return f"{epochs} {'epoch' if epochs == 1 else 'epochs'}"


def svg() -> str:
    """Draw linear-probe and kNN accuracy against processor seconds."""
    places = _places(_trained())
    encoders = list(dict.fromkeys(encoder for encoder, _ in places))
    numbers = sorted({images for _, images in places})
    with rc_context(style("budgets")):
        figure = Figure(figsize=(9.6, 0.8 + 2.5 * len(encoders)))
        figure.set_layout_engine("constrained", w_pad=0.1)  # tick labels of neighbors stay apart
        all_axes = figure.subplots(len(encoders), len(numbers), sharey="row", squeeze=False)
        for (row, encoder), (column, images) in (
            ((i, e), (j, n)) for i, e in enumerate(encoders) for j, n in enumerate(numbers)
        ):
            axes = all_axes[row, column]
            _panel(axes, encoder, _series(encoder, images))
            if row == 0:
                axes.set_title(f"{whole(images)} images", fontsize=10, fontweight="bold")
            if row == len(encoders) - 1:
                axes.set_xlabel("processor seconds")
        for row, encoder in enumerate(encoders):
            all_axes[row, 0].set_ylabel(f"{encoder.removesuffix('_patch16_224')}\nclass, %")
        handles = [
            *(
                all_axes[0, 0].plot([], [], color=color, marker="o", markersize=4, label=method)[0]
                for method, color in COLORS.items()
            ),
            all_axes[0, 0].plot(
                [], [], color=INK, ls=":", marker="o", mfc="w", label="kNN (k = 20)"
            )[0],
            all_axes[0, 0].plot([], [], color=FAINT, ls="--", label="baselines, linear")[0],
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False)
        return svg_text(figure)


def _panel(axes: Axes, encoder: str, series: dict[str, list[list[Run]]]) -> None:
    """Draw a method's linear-probe accuracy as filled dots, and kNN accuracy as hollow ones."""
    if not series:
        axes.set_axis_off()
        return
    axes.grid(axis="y", color="#e5e8eb", linewidth=0.8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#c4ccd4")
    axes.tick_params(length=0)
    for kind in FLOORS:
        axes.axhline(100 * _floor(encoder, kind, "linear"), color=FAINT, ls="--", linewidth=1)
    for method, runs in series.items():
        seconds = [_mean(own, "processor_seconds") for own in runs]
        strong = 2.2 if method in OURS else 1.2
        for name, line, face in (("linear", "-", COLORS[method]), ("knn", ":", "white")):
            scores = [100 * _mean(own, name) for own in runs]
            axes.plot(
                seconds,
                scores,
                line,
                color=COLORS[method],
                linewidth=strong,
                marker="o",
                markersize=4,
                markerfacecolor=face,
                zorder=3 if method in OURS else 2,
            )
    axes.set_xlim(0, 1.08 * axes.get_xlim()[1])
