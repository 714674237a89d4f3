"""Draw docs/views-drawn.png and docs/views-small.png: every view policy on three photographs.

    python benchmarks/view_gallery.py

Takes about a minute on one core: views that learn or attack are shown against an encoder that they
were trained with for 20 steps.
"""

import argparse
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from widefield.config.recipe import Recipe
from widefield.config.recipes import make_recipe
from widefield.data import Loader, open_dataset
from widefield.data.builtin.photos import load_photo
from widefield.data.planted import Shapes, plant
from widefield.train.adversary import loss_gradients
from widefield.train.build import DataInfo, build
from widefield.train.distributed import Compute
from widefield.train.state import TrainState
from widefield.train.step import TrainStep
from widefield.views import VIEWS, AugmentContext, build_views

PHOTOGRAPHS = ("astronaut", "chelsea", "coffee")
SIDE = 96
BUDGET = 0.1
STEPS = 20
CPU = torch.device("cpu")
LOUDER = 4
"""Differences are drawn as gray + LOUDER x difference."""
INK, FAINT = "#22262b", "#8a9099"


def photographs() -> tuple[Tensor, Tensor]:
    """The photographs with a shape planted, x [3, 3, S, S] in [0, 1], and its mask [3, 1, S, S]."""
    squares = [_square(load_photo(name)) for name in PHOTOGRAPHS]
    planted = plant(np.stack(squares), Shapes(), seed=1)
    x = torch.from_numpy(planted.images).permute(0, 3, 1, 2).float() / 255
    return x, torch.from_numpy(planted.mask)[:, None]


def _square(image: Image.Image) -> np.ndarray:
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 4
    cropped = image.crop((left, top, left + side, top + side))
    return np.asarray(cropped.resize((SIDE, SIDE), Image.Resampling.LANCZOS))


@dataclass(frozen=True)
class Row:
    """Views of one policy: pixels [photographs, 2, H, W, 3], and how the first one differs."""

    name: str
    views: np.ndarray
    difference: np.ndarray | None


def row(name: str, x: Tensor, mask: Tensor) -> Row:
    """Two views of each of `x` under the policy `name`."""
    if name == "expert:stacked":
        return stacked_row(name, x)
    loud = {"viewmaker_budget": BUDGET, "attack_budget": BUDGET, "viewmaker_lr": 3e-3}
    settings = {key: value for key, value in loud.items() if key in make_recipe(views=name).flat()}
    policy = build_views(name, **settings)
    context = AugmentContext(mask=mask)
    if policy.gradient_calls or list(policy.parameters()):
        recipe = make_recipe(
            method="simclr", views=name, encoder="resnet-tiny", batch_size=16, epochs=1,
            schedule="constant", warmup_epochs=0.0, lr=2e-3, **settings,
        )  # fmt: skip
        state = trained(recipe)
        policy = state.views
        gradients = partial(loss_gradients, state.model, torch.arange(len(x)), nullcontext)
        context = AugmentContext(mask=mask, gradients=gradients)
    with torch.no_grad():
        drawn = torch.stack(policy(x, 2, torch.Generator().manual_seed(2), context), dim=1)
    in_place = policy.pixel_aligned and name not in ("none", "random-mask", "color")
    difference = _pixels(0.5 + LOUDER * (drawn[:1, 0] - x[:1]))[0] if in_place else None
    return Row(name, _pixels(drawn.flatten(0, 1)).reshape(len(x), 2, SIDE, SIDE, 3), difference)


def stacked_row(name: str, x: Tensor) -> Row:
    """One view of each of `x` with a digit stacked on it: the image beside its fourth channel."""
    digits = load_digits().images[[1, 2, 3]] / 16
    images = [Image.fromarray(np.uint8(255 * d)).resize((SIDE, SIDE)) for d in digits]
    fourth = torch.from_numpy(np.stack([np.asarray(i) for i in images])).float()[:, None] / 255
    (view,) = build_views(name)(torch.cat([x, fourth], 1), 1, torch.Generator().manual_seed(2))
    pairs = torch.stack([view[:, :3], view[:, 3:].expand(-1, 3, -1, -1)], dim=1)
    return Row(name, _pixels(pairs.flatten(0, 1)).reshape(len(x), 2, SIDE, SIDE, 3), None)


def trained(recipe: Recipe) -> TrainState:
    """Train SimCLR for a few steps on crops of photographs; views that learn train beside it."""
    dataset, device = open_dataset("photos+shapes", max_examples=STEPS * recipe.batch_size), CPU
    state = build(recipe, DataInfo.of(dataset), device=device)
    step = TrainStep(state, compute=Compute(device, "32-true"))
    for batch in Loader(dataset, batch_size=recipe.batch_size, device=device, masks=True).epoch(0):
        step(batch)
    state.model.eval()
    return state


def _pixels(x: Tensor) -> np.ndarray:
    return np.uint8(255 * x.detach().clamp(0, 1).permute(0, 2, 3, 1).numpy())


def draw(rows: list[Row], x: Tensor, path: Path) -> None:
    """Rows of views below the photographs themselves; a last column where pixels stay in place."""
    last = any(r.difference is not None for r in rows)
    columns = 2 * len(x) + last
    label, tile, gap, group = 1.75, 0.92, 0.05, 0.16
    lefts = [label + i * (tile + gap) + (i // 2) * group for i in range(columns)]
    width, height = lefts[-1] + tile + 0.1, (len(rows) + 1) * (tile + gap) + 0.35
    figure = Figure(figsize=(width, height), facecolor="white")

    def axes(column: int, line: int) -> Axes:
        top = height - 0.3 - (line + 1) * (tile + gap) + gap
        box = (lefts[column] / width, top / height, tile / width, tile / height)
        panel: Axes = figure.add_axes(box)
        panel.set_axis_off()
        return panel

    def say(text: str, left: float, line: float, **style: object) -> None:
        bottom = height - 0.3 - line * (tile + gap) - tile / 2
        figure.text(left / width, bottom / height, text, va="center", **{"color": INK, **style})

    say("image", 0.1, 0, fontsize=11, color=FAINT)
    for i, image in enumerate(_pixels(x)):
        axes(2 * i, 0).imshow(image, interpolation="lanczos")
    if last:
        figure.text(
            (lefts[-1] + tile / 2) / width, (height - 0.3 - tile + 0.06) / height,
            f"difference\nof the first,\n{LOUDER} x", ha="center", va="bottom",
            fontsize=8.5, color=FAINT,
        )  # fmt: skip
    for line, r in enumerate(rows, start=1):
        say(r.name.replace(":", ":\n"), 0.1, line, fontsize=11, family="monospace")
        for column, view in enumerate(r.views.reshape(-1, SIDE, SIDE, 3)):
            axes(column, line).imshow(view, interpolation="lanczos")
        if r.difference is not None:
            axes(columns - 1, line).imshow(r.difference, interpolation="lanczos")
    # `make lint` compares these names with the policies of today.
    figure.savefig(path, dpi=110, metadata={"Description": " ".join(r.name for r in rows)})


IMAGE_STAGES = ("image", "picture", "any")


def main() -> None:
    """Draw both figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"))
    out = parser.parse_args().out
    x, mask = photographs()
    rows = [row(name, x, mask) for name in VIEWS if VIEWS[name].stage in IMAGE_STAGES]
    draw([r for r in rows if r.difference is None], x, out / "views-drawn.png")
    draw([r for r in rows if r.difference is not None], x, out / "views-small.png")


if __name__ == "__main__":
    main()
