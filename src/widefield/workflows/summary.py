"""A run told in one page: curves, health, what the encoder was shown."""

import numpy as np
import torch

from widefield.data import Dataset
from widefield.report import Curve, Report, Table
from widefield.train.folder import RunFolder
from widefield.train.progress import read_metrics
from widefield.views import build_views

EXAMPLES, VIEWS_SHOWN = 6, 5

CAPTIONS = {
    "loss": "What training minimises; it should fall, and flatten towards the end.",
    "effective_rank": "Directions that the features use; more is better, near 1 is collapse.",
    "feature_std": "Spread of the features' directions; near 0 all images look the same to it.",
}


def run_report(
    folder: RunFolder,
    dataset: Dataset,
    *,
    title: str,
    summary: str,
    table: Table | None = None,
    next_steps: tuple[str, ...] = (),
) -> Report:
    """The page of the run in `folder`, trained on `dataset`."""
    metrics, settings = read_metrics(folder.path / "metrics.csv"), folder.settings()
    recipe = folder.recipe()
    spread = np.linspace(0, len(dataset) - 1, min(EXAMPLES, len(dataset)), dtype=int)
    return Report(
        title=title,
        summary=summary,
        table=table,
        curves={
            name.replace("_", " "): _curve(metrics, name, caption)
            for name, caption in CAPTIONS.items()
        },
        view_grid=view_grid(recipe.views, dataset.images[spread], seed=recipe.seed),
        health=[(int(row["epoch"]), _health_line(row)) for row in metrics if row.get("verdict")],
        next_steps=next_steps,
        facts={
            "data": f"{dataset.spec}, {len(dataset)} examples",
            "method": f"{recipe.method}, views {recipe.views}, encoder {recipe.encoder}",
            "schedule": f"{recipe.epochs} epochs, batch {recipe.batch_size}, seed {recipe.seed}",
            "speed": f"{float(metrics[-1]['images_per_second']):,.0f} images/s in the last epoch",
            "began": settings["began"],
            "widefield": settings["widefield"],
            **settings["machine"],
        },
    )


def view_grid(views: str, images: np.ndarray, *, seed: int) -> np.ndarray:
    """Images beside their views, uint8 [examples, 1 + views, H, W, C]."""
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float() / 255
    drawn = build_views(views)(x, VIEWS_SHOWN, torch.Generator().manual_seed(seed))
    grid = torch.stack([x, *drawn], dim=1).permute(0, 1, 3, 4, 2)
    return np.asarray((255 * grid).round().to(torch.uint8).numpy())


def _curve(metrics: list[dict[str, str]], name: str, caption: str) -> Curve:
    rows = [row for row in metrics if row.get(name)]
    return Curve(
        x=[float(row["epoch"]) for row in rows],
        y=[float(row[name]) for row in rows],
        caption=caption,
        from_zero=name != "loss",
    )


def _health_line(row: dict[str, str]) -> str:
    return (
        f"{row['verdict']}: effective rank {float(row['effective_rank']):.0f}, "
        f"{float(row['large_singular_values']):.0f} large singular values, "
        f"feature std {float(row['feature_std']):.2f}"
    )
