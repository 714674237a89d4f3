"""Costs of a step, and other ratios of `benchmarks/ratios`: docs/notebook.md and other pages."""

import statistics

from pages.format import RESULTS, ratio, read, table
from widefield.config.defaults import DEFAULT_METHOD


def step_ratios(setting: str) -> dict[str, float]:
    """Return the measured steps, as multiples of the bare encoder's, one file a method."""
    files = sorted((RESULTS / "bench_step" / setting).glob("*.json"))
    ratios = [read(f"bench_step/{setting}/{file.stem}")["ratios"] for file in files]
    return {
        name.removesuffix("/bare"): value
        for measured in ratios
        for name, value in measured.items()
        if name.endswith("/bare")
    }


def ratios() -> str:
    """Return ratios of timings."""
    tiny, large = step_ratios("resnet-tiny"), step_ratios("resnet18")
    head, views, probe, readout = (
        read(f"bench_{name}")["ratios"]
        for name in ("head_resnet-tiny", "views", "probe", "readout")
    )
    steps = ", ".join(
        f"{encoder} {ratio(measured[DEFAULT_METHOD])} ({ratio(measured['simclr'])})"
        for encoder, measured in (("resnet-tiny", tiny), ("resnet18", large))
        if DEFAULT_METHOD in measured
    )
    # torchvision takes tensors and PIL images; the faster of the two counts.
    torchvision = min(r for name, r in views.items() if name.startswith("widefield/torchvision"))
    faster = f"{ratio(views['widefield/kornia'])}, {ratio(torchvision)}"
    rows = [
        (f"training step of {DEFAULT_METHOD} / bare encoder (of SimCLR)", steps, "step"),
        (
            "step with 10,000,000 rows on disk / with 10,000",
            ratio(head["step@1e7/step@1e4"]),
            "head",
        ),
        ("views per second / kornia's, / torchvision's", faster, "views"),
        (
            "scikit-learn's time for the same probe / ours",
            ratio(probe["sklearn/widefield"]),
            "probe",
        ),
        (
            "images per second of `embed`, wide / pooled, from PNG files (from memory)",
            f"{ratio(readout['wide/pooled, from files'])} ({ratio(readout['wide/pooled'])})",
            "readout",
        ),
    ]
    cells = [
        (what, measured, f"`python -m benchmarks.ratios.{kind}`") for what, measured, kind in rows
    ]
    return table(("ratio", "measured", "command"), cells)


def lightly() -> str:
    """Return the speed beside lightly's loop, and what limits it, in a few sentences."""
    found = read("bench_lightly_loop")
    ratios, seconds = found["ratios"], found["values"]
    theirs, bare = seconds["lightly_seconds"], seconds["bare_seconds"]
    faster = ", ".join(
        f"{ratio(ratios[f'{name}/lightly'])} (`{name}`)"
        for name in ("s-diet", "view-contrast", "simclr")
    )
    return (
        "Images a processor second beside SimCLR in the loop of lightly's documentation, with the "
        f"same encoder and images and with bfloat16 added to it: {faster} times as many. Of "
        f"lightly's step, {100 * seconds['lightly_views_seconds'] / theirs:.0f} % are its views. "
        "No step can be shorter than that of the bare encoder, which allows at most "
        f"{ratio(theirs / bare)} times as many with one view and {ratio(theirs / bare / 2)} with "
        "two (`python -m benchmarks.ratios.lightly_loop`)."
    )


def compiled() -> str:
    """Return the table of steps with a compiled encoder beside those without."""
    lines = []
    for file in sorted(RESULTS.glob("bench_compiled_*.json")):
        found = read(file.stem)
        values = found["values"]
        for name, faster in found["ratios"].items():
            method, _, mode = name.removesuffix("/none").rpartition("_")
            seconds = [values[f"{method}_{kind}_seconds"] for kind in ("none", mode)]
            setting = f"{values['encoder']}, {method}, batches of {values['batch_size']}"
            speeds = [f"{1 / each:.2f}" for each in seconds]
            compile_seconds = f"{values[f'{method}_{mode}_compile_seconds']:.0f} s"
            machine = found["machine"].get("gpu", found["machine"]["cpu"])
            lines.append((setting, machine, mode, *speeds, ratio(faster), compile_seconds))
    columns = ("training", "machine", "compile", "steps/s without", "with", "ratio", "compilation")
    return table(columns, lines)


def both_directions() -> str:
    """Return the cost of BYOL in both directions in a sentence."""
    tiny, large = (
        ratio(step_ratios(encoder)["byol-both-directions"])
        for encoder in ("resnet-tiny", "resnet18")
    )
    return (
        f"`--directions both` is BYOL as published, with two trained views and two of the target "
        f"network: {tiny} times the bare step, and {large} times with resnet18."
    )


def viewmaker() -> str:
    """Return the cost of learned views in a sentence."""
    measured = step_ratios("resnet18-viewmaker")
    return (
        "With resnet18 on 32 x 32 images in batches of 128, a step with the viewmaker takes "
        f"{ratio(measured['simclr'])} times the bare encoder's with `simclr` and "
        f"{ratio(measured['row-contrast'])} times with `row-contrast` (`python -m "
        "benchmarks.ratios.step --views viewmaker --encoder resnet18 --batch-size 128`)."
    )


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
