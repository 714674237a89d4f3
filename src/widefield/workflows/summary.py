"""A run told in one page: curves, health, what the encoder was shown."""

import numpy as np
import torch

from widefield.data import Dataset
from widefield.report import Curve, Report, Table
from widefield.train.checkpoint import load
from widefield.train.folder import RunFolder
from widefield.train.progress import read_metrics
from widefield.views import Scene, build_views

EXAMPLES, VIEWS_SHOWN = 6, 5

CAPTIONS = {
    "loss": "What training minimises; it should fall, and flatten towards the end. S-DIET's begins "
    "low, as every row starts at its own example.",
    "opponent_loss": "What the views drive up, measured on views drawn after each step.",
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
    return Report(
        title=title,
        summary=summary,
        table=table,
        curves={
            name.replace("_", " "): _curve(metrics, name, caption)
            for name, caption in CAPTIONS.items()
            if any(row.get(name) for row in metrics)
        },
        view_grid=view_grid(folder, dataset),
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


def view_grid(folder: RunFolder, dataset: Dataset) -> np.ndarray | None:
    """Images beside their views, as the run left them, uint8 [examples, 1 + views, H, W, C].

    None for views that attack an encoder, which is not here.
    """
    recipe = folder.recipe()
    rows = np.linspace(0, len(dataset) - 1, min(EXAMPLES, len(dataset)), dtype=int)
    images = np.ascontiguousarray(dataset.images[rows])
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    views = build_views(recipe.views, recipe=recipe, channels=x.shape[1])
    if views.gradient_calls:
        return None
    views.load_state_dict(load(folder.last_checkpoint, torch.device("cpu"))["views"])
    mask = torch.from_numpy(dataset.masks(rows)).permute(0, 3, 1, 2) if views.needs_mask else None
    generator = torch.Generator().manual_seed(recipe.seed)
    with torch.no_grad():
        drawn = views(x, VIEWS_SHOWN, generator, Scene(mask=mask))
    grid = torch.stack([x, *drawn], dim=1).permute(0, 1, 3, 4, 2).clamp(0, 1)
    shown = grid if grid.shape[-1] == 1 else grid[..., :3]
    return np.asarray((255 * shown).round().to(torch.uint8).numpy())


def _curve(metrics: list[dict[str, str]], name: str, caption: str) -> Curve:
    rows = [row for row in metrics if row.get(name)]
    return Curve(
        x=[float(row["epoch"]) for row in rows],
        y=[float(row[name]) for row in rows],
        caption=caption,
        from_zero=not name.endswith("loss"),
    )


def _health_line(row: dict[str, str]) -> str:
    return (
        f"{row['verdict']}: effective rank {float(row['effective_rank']):.0f}, "
        f"{float(row['large_singular_values']):.0f} large singular values, "
        f"feature std {float(row['feature_std']):.2f}"
    )
