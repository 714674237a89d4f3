"""The HTML page of a run: training curves, health, and views."""

import copy
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from widefield.core.types import Kind
from widefield.data import Dataset
from widefield.inference.pictures import recorded, render_views, sound_of
from widefield.probes.features import image_batch
from widefield.report import AccuracyTable, Lines, RunReport
from widefield.train.next_steps import next_steps
from widefield.train.progress import read_metrics
from widefield.train.run import PretrainRun
from widefield.train.run_dir import RunFolder
from widefield.views import Augmentation, AugmentContext

# As many as the page shows (report/pages.py).
_EXAMPLES, NUM_VIEWS = 6, 5
# A curve of fewer points shows no shape; chosen by hand.
FEW_EPOCHS = 8
"""Epochs below which the loss is plotted by steps."""

CAPTIONS = {
    "loss": "The training loss, which should decrease and converge. A head that is initialized "
    "with the features of its examples knows them at first: the loss begins low, rises, and then "
    "falls.",
    "adversary_loss": "The loss that the views maximize, on views drawn after each step.",
    "effective_rank": "Dimensions that the features use; near 1 they collapsed.",
    "feature_std": "Standard deviation of normalized features; near 0 they collapsed.",
}


def write_run_page(run: PretrainRun) -> None:
    """Write the page of a finished run into its folder."""
    page = run_report(
        run.folder,
        run.dataset,
        views=copy.deepcopy(run.state.views).cpu(),
        title=f"{run.dataset.spec} by {run.recipe.method.name}: {run.monitor.answer()}",
        summary=f"The encoder is trained. {run.monitor.summary()}",
        details=run.monitor.details(),
        next_steps=next_steps(run.folder.path, run.dataset, run.recipe.encoder.name),
    )
    page.write(run.folder.path / "report.html", overwrite=True)


def run_report(
    folder: RunFolder,
    dataset: Dataset,
    *,
    views: Augmentation,
    title: str,
    summary: str,
    details: Sequence[str] = (),
    table: AccuracyTable | None = None,
    next_steps: tuple[str, ...] = (),
) -> RunReport:
    """Return the page of the run in `folder` on `dataset`, with `views` as they were trained."""
    metrics, settings = read_metrics(folder.path / "metrics.csv"), folder.settings()
    sources = dict.fromkeys(CAPTIONS, (metrics, "epoch"))
    if len(metrics) < FEW_EPOCHS:
        steps = read_metrics(folder.path / "steps.csv")
        sources["loss"] = (steps, "step") if len(steps) > len(metrics) else (metrics, "epoch")
    recipe = folder.recipe()
    return RunReport(
        title=title,
        summary=summary,
        details=details,
        table=table,
        curves=[
            _plot(rows, name, by)
            for name, (rows, by) in sources.items()
            if any(row.get(name) for row in rows)
        ],
        view_grid=view_grid(views, dataset, recipe.seed),
        example=dataset.kind.removesuffix("s"),
        sounds=[sound_of(*x) for x in recorded(dataset, dataset.spread_rows(_EXAMPLES))],
        health=_health_lines(metrics),
        next_steps=next_steps,
        metadata={
            "data": f"{dataset.spec}, {len(dataset)} examples",
            "method": f"{recipe.method.name}, views {recipe.views.names}, "
            f"encoder {recipe.encoder.name}",
            "schedule": f"{recipe.epochs} epochs, batch {recipe.batch_size}, seed {recipe.seed}",
            **_throughput(metrics, dataset.kind),
            **{name: settings[name] for name in ("began", "widefield") if name in settings},
            **{str(name): str(value) for name, value in settings.get("machine", {}).items()},
        },
    )


def view_grid(views: Augmentation, dataset: Dataset, seed: int) -> np.ndarray | None:
    """Return a few images, each followed by views of it, uint8 [examples, 1 + views, H, W, C].

    None for views that need the gradient of the loss.
    """
    if views.gradient_calls:
        return None
    rows = dataset.spread_rows(_EXAMPLES)
    x = image_batch(dataset.images[rows], torch.device("cpu"))
    render = partial(render_views, kind=dataset.kind, rate=dataset.rate)
    mask = torch.from_numpy(dataset.masks(rows)).permute(0, 3, 1, 2) if views.needs_mask else None
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        augmented = views(x, NUM_VIEWS, generator, AugmentContext(mask=mask))
    return np.stack([render(part) for part in (x, *augmented)], axis=1)


def _plot(metrics: list[dict[str, str]], name: str, by: str) -> Lines:
    rows = [row for row in metrics if row.get(name)]
    title = name.replace("_", " ")
    return Lines(
        title=title,
        caption=CAPTIONS[name],
        series={title: ([float(row[by]) for row in rows], [float(row[name]) for row in rows])},
        x_label=by,
        # Only large changes of a diagnostic matter; a loss may be small throughout.
        y_range=None if name.endswith("loss") else (0, None),
    )


def _throughput(metrics: list[dict[str, str]], kind: Kind) -> dict[str, str]:
    rates = [row["images_per_second"] for row in metrics if row.get("images_per_second")]
    return {"throughput": f"{float(rates[-1]):,.0f} {kind}/s in the last epoch"} if rates else {}


def _health_lines(metrics: list[dict[str, str]]) -> list[tuple[int, str]]:
    text = "{}: effective rank {:.0f}, {:.0f} large singular values, feature std {:.2f}"
    names = ("effective_rank", "large_singular_values", "feature_std")
    return [
        (int(row["epoch"]), text.format(row["verdict"], *(float(row[name]) for name in names)))
        for row in metrics
        if all(row.get(name) for name in ("verdict", *names))
    ]
