"""The figures of the lab sparse-coding, from its arrays."""

import numpy as np

from widefield_labs.lab import Arrays, Axes, Figure

LABELS = ("RandomMask", "no augmentation")
MARKERS = "os"
OUTCOMES = {
    "covered": "atoms\ncovered",
    "cos_noise": "cos to\nf(ξ)",
    "cos_signal": "cos to\nf(Mz)",
    "r2": "R² of\n<w*, z>",
    "sign": "sign\n<w*, z>",
}


def draw_sweep(arrays: Arrays, figure: Figure, what: str) -> None:
    """Draw singletons, closeness to the noise and R^2 of both arms over the swept parameter."""
    shown = {
        "best": "mean largest |<w, M_j>| / |w|",
        "cos_noise": "cos(f(x), f(ξ))",
        "r2": "R² of y = <w*, z>",
    }
    order = np.argsort(arrays["swept"])
    panels = figure.subplots(1, len(shown))
    for axes, (name, title) in zip(panels, shown.items(), strict=True):
        for arm, (label, marker) in enumerate(zip(LABELS, MARKERS, strict=True)):
            values = arrays[f"sweep_{name}"][order, arm]
            named = label if axes is panels[0] else None
            axes.plot(arrays["swept"][order], values, label=named, marker=marker)
        axes.set(xlabel=what, ylabel=title, ylim=(0, 1))


def draw_base(arrays: Arrays, figure: Figure) -> None:
    """Draw where the weight lies, singletons, outcomes and trained biases."""
    figure.set_size_inches(9, 6)
    (stages, singles), (outcome, biases) = figure.subplots(2, 2)
    step, trained_step = arrays["step"], arrays["trained_step"]
    for arm, (label, marker) in enumerate(zip(LABELS, MARKERS, strict=True)):
        style = {"marker": marker, "ms": 3, "markevery": 10}
        for name, part in (("inside", "sparse part"), ("outside", "dense part")):
            stages.plot(step, arrays[name][:, arm], label=f"{part}, {label}", **style)
        singles.plot(step, arrays["best_curve"][:, arm], label=label, **style)
        biases.plot(trained_step, arrays["trained_bias"][:, arm], label=label, **style)
    for axes in (stages, singles):
        for start, dash in zip(arrays["stage_two"][:2], ("-", "--"), strict=True):
            axes.axvline(start, color="0.5", lw=0.8, ls=dash)
        axes.set(xlabel="step (gray: stage II begins)")
    stages.set(yscale="log", ylabel="mean norm over neurons", title="Where the weight lies")
    singles.set(ylabel="mean largest |<w, M_j>| / |w|", ylim=(0, 1), title="Singletons")
    biases.set(xlabel="step", ylabel="mean bias", title="Biases that the loss trains")
    draw_outcomes(arrays, outcome)


def draw_outcomes(arrays: Arrays, axes: Axes) -> None:
    """Draw a bar for each outcome and arm, and the best that is linear in x."""
    place = np.arange(len(OUTCOMES))
    for arm, (label, hatch) in enumerate(zip(LABELS, ("", "//"), strict=True)):
        height = [arrays[name][arm] for name in OUTCOMES]
        at = place + 0.4 * arm - 0.2
        axes.bar(at, height, 0.4, label=label, hatch=hatch, edgecolor="black")
    for index, name in enumerate(OUTCOMES):
        if f"linear_{name}" in arrays:
            best = arrays[f"linear_{name}"][0]
            axes.plot([index - 0.45, index + 0.45], [best] * 2, "k-", lw=2)
    axes.plot([], [], "k-", lw=2, label="best that is linear in x")
    axes.set_xticks(place, list(OUTCOMES.values()), fontsize=7)
    axes.set(ylim=(0, 1.35), ylabel="at the end", title="Theorems 3.2 and 3.4")
    axes.legend(fontsize=7, loc="upper center", ncols=2)
