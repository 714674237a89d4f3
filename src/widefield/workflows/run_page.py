"""The page of a run: its curves, its health, and what the encoder was shown."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from widefield.core.types import Kind
from widefield.data import Dataset
from widefield.inference.pictures import heard, view_pictures
from widefield.inference.run_views import run_views
from widefield.probes.features import image_batch
from widefield.report import Lines, RunReport, Table
from widefield.train.next_steps import next_steps
from widefield.train.progress import read_metrics
from widefield.train.run import PretrainRun
from widefield.train.run_dir import RunFolder
from widefield.views import AugmentContext

_EXAMPLES, VIEWS_SHOWN = 6, 5
FEW_EPOCHS = 8
"""Epochs below which the curve of the loss goes by steps."""

CAPTIONS = {
    "loss": "What training minimizes; it should fall, and flatten towards the end. It may begin "
    "low, where a head starts at the features of its own examples.",
    "adversary_loss": "What the views drive up, measured on views drawn after each step.",
    "effective_rank": "Directions that the features use; more is better, near 1 is collapse.",
    "feature_std": "Spread of the features' directions; near 0 all examples are the same to it.",
}


def write_run_page(run: PretrainRun) -> None:
    """Write the page of a run that has just finished into its folder."""
    page = run_report(
        run.folder,
        run.dataset,
        title=f"{run.recipe.method.name} on {run.dataset.spec}",
        summary=f"The encoder is trained. {run.monitor.summary()}",
        details=run.monitor.details(),
        next_steps=next_steps(run.folder.path, run.dataset),
    )
    page.write(run.folder.path / "report.html", overwrite=True)


def run_report(
    folder: RunFolder,
    dataset: Dataset,
    *,
    title: str,
    summary: str,
    details: Sequence[str] = (),
    table: Table | None = None,
    next_steps: tuple[str, ...] = (),
) -> RunReport:
    """Return the page of the run in `folder`, which was trained on `dataset`."""
    metrics, settings = read_metrics(folder.path / "metrics.csv"), folder.settings()
    tables = dict.fromkeys(CAPTIONS, (metrics, "epoch"))
    if len(metrics) < FEW_EPOCHS:
        steps = read_metrics(folder.path / "steps.csv")
        tables["loss"] = (steps, "step") if len(steps) > len(metrics) else (metrics, "epoch")
    recipe = folder.recipe()
    return RunReport(
        title=title,
        summary=summary,
        details=details,
        table=table,
        curves=[
            _curve(rows, name, by)
            for name, (rows, by) in tables.items()
            if any(row.get(name) for row in rows)
        ],
        view_grid=view_grid(folder, dataset),
        example=dataset.kind.removesuffix("s"),
        sounds=heard(dataset, dataset.spread_rows(_EXAMPLES)),
        health=[(int(row["epoch"]), _health_line(row)) for row in metrics if _has_health(row)],
        next_steps=next_steps,
        metadata={
            "data": f"{dataset.spec}, {len(dataset)} examples",
            "method": f"{recipe.method.name}, views {recipe.views.names}, "
            f"encoder {recipe.encoder.name}",
            "schedule": f"{recipe.epochs} epochs, batch {recipe.batch_size}, seed {recipe.seed}",
            **_speed(metrics, dataset.kind),
            **{name: settings[name] for name in ("began", "widefield") if name in settings},
            **{str(name): str(fact) for name, fact in settings.get("machine", {}).items()},
        },
    )


def view_grid(folder: RunFolder, dataset: Dataset) -> np.ndarray | None:
    """Draw views of a few images with the run's views, uint8 [examples, 1 + views, H, W, C].

    The image comes first. Augmentation that attack an encoder give None: it would have to be there.
    """
    views = run_views(folder.path)
    if views.gradient_calls:
        return None
    rows = dataset.spread_rows(_EXAMPLES)
    x = image_batch(dataset.images[rows], torch.device("cpu"))
    pictures = partial(view_pictures, kind=dataset.kind, rate=dataset.rate)
    mask = torch.from_numpy(dataset.masks(rows)).permute(0, 3, 1, 2) if views.needs_mask else None
    generator = torch.Generator().manual_seed(folder.recipe().seed)
    with torch.no_grad():
        drawn = views(x, VIEWS_SHOWN, generator, AugmentContext(mask=mask))
    return np.stack([pictures(part) for part in (x, *drawn)], axis=1)


def _curve(metrics: list[dict[str, str]], name: str, by: str) -> Lines:
    """Return the curve of a column over the epochs or steps of its rows."""
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


def _speed(metrics: list[dict[str, str]], kind: Kind) -> dict[str, str]:
    """Return how fast the last epoch was, if the log says so."""
    speeds = [row["images_per_second"] for row in metrics if row.get("images_per_second")]
    if not speeds:
        return {}
    return {"speed": f"{float(speeds[-1]):,.0f} {kind}/s in the last epoch"}


def _has_health(row: dict[str, str]) -> bool:
    names = ("verdict", "effective_rank", "large_singular_values", "feature_std")
    return all(row.get(name) for name in names)


def _health_line(row: dict[str, str]) -> str:
    return (
        f"{row['verdict']}: effective rank {float(row['effective_rank']):.0f}, "
        f"{float(row['large_singular_values']):.0f} large singular values, "
        f"feature std {float(row['feature_std']):.2f}"
    )
