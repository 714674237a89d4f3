"""Draw docs/views-drawn.png and docs/views-small.png: every view policy on three photographs.

    python scripts/view_pictures.py

Views that learn or attack are shown against an encoder that they were trained with for 20 steps.
"""

from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from widefield.config.recipe import Recipe
from widefield.config.recipes import make_recipe
from widefield.data import Loader, open_dataset
from widefield.data.builtin.photos import load_photo
from widefield.data.planted import Canvas, Shapes
from widefield.train.adversary import loss_gradients
from widefield.train.build import DataInfo, build
from widefield.train.compute import Compute
from widefield.train.state import TrainState
from widefield.train.step import TrainStep
from widefield.views import VIEWS, AugmentContext, build_views

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = (DOCS / "views-drawn.png", DOCS / "views-small.png")
COMMAND = "python scripts/view_pictures.py"
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee")
SIDE, STEPS, LOUDER = 96, 20, 4
LOUD = {"viewmaker_budget": 0.1, "attack_budget": 0.1, "viewmaker_lr": 3e-3}

Row = tuple[str, Tensor, Tensor | None]
"""A policy, two views of each photograph [2 B, C, H, W], and how the first one differs."""


def image_views() -> list[str]:
    """Return the policies that change images; those of windows and sounds are on no picture."""
    return [name for name, policy in VIEWS.items() if policy.stage in ("image", "picture", "any")]


def missing_views() -> set[str]:
    """Return the view policies that are on no picture, and those on one that are gone."""
    drawn: set[str] = set()
    for path in PICTURES:
        with Image.open(path) as picture:
            drawn |= set(picture.info["Description"].split())
    return drawn ^ set(image_views())


def photographs() -> tuple[Tensor, Tensor]:
    """Return the photographs with a shape planted, [3, 3, S, S] in [0, 1], and its mask."""
    images = np.stack([_square(load_photo(n)) for n in PHOTOGRAPHS])
    overlay = Shapes().draw(Canvas(shape=images.shape[1:], seed=1, held_out=False))
    mask = overlay.apply(images, np.arange(len(images)))
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    return x, torch.from_numpy(mask)[:, None]


def _square(image: Image.Image) -> np.ndarray:
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 4
    cropped = image.crop((left, top, left + side, top + side))
    return np.asarray(cropped.resize((SIDE, SIDE), Image.Resampling.LANCZOS))


def row(name: str, x: Tensor, mask: Tensor) -> Row:
    """Return two views of each of `x` under the policy `name`."""
    if name == "expert:stacked":
        return stacked_row(name, x)
    settings = {key: value for key, value in LOUD.items() if key in make_recipe(views=name).flat()}
    policy, context = build_views(name, **settings), AugmentContext(mask=mask)
    if policy.gradient_calls or list(policy.parameters()):
        state = trained(
            make_recipe(
                method="simclr", views=name, encoder="resnet-tiny", batch_size=16, epochs=1,
                schedule="constant", warmup_epochs=0.0, lr=2e-3, **settings,
            )
        )  # fmt: skip
        policy = state.views
        gradients = partial(loss_gradients, state.model, torch.arange(len(x)), nullcontext)
        context = AugmentContext(mask=mask, gradients=gradients)
    with torch.no_grad():
        drawn = torch.stack(policy(x, 2, torch.Generator().manual_seed(2), context), dim=1)
    in_place = policy.pixel_aligned and name not in ("none", "random-mask", "color")
    return name, drawn.flatten(0, 1), 0.5 + LOUDER * (drawn[0, 0] - x[0]) if in_place else None


def stacked_row(name: str, x: Tensor) -> Row:
    """Return a view of each of `x` with a digit stacked on it: the image beside the digit."""
    from sklearn.datasets import load_digits

    digits = torch.from_numpy(load_digits().images[[1, 2, 3]] / 16).float()[:, None]
    fourth = torch.nn.functional.interpolate(digits, size=(SIDE, SIDE), mode="bicubic")
    stacked = torch.cat([x, fourth.clamp(0, 1)], 1)
    (view,) = build_views(name)(stacked, 1, torch.Generator().manual_seed(2))
    pairs = torch.stack([view[:, :3], view[:, 3:].expand(-1, 3, -1, -1)], dim=1)
    return name, pairs.flatten(0, 1), None


def trained(recipe: Recipe) -> TrainState:
    """Train SimCLR for a few steps on crops of photographs; views that learn train beside it."""
    dataset = open_dataset("photos+shapes", max_examples=STEPS * recipe.batch_size)
    cpu = torch.device("cpu")
    state = build(recipe, DataInfo.of(dataset), device=cpu)
    step = TrainStep(state, compute=Compute(cpu, "32-true"))
    for batch in Loader(dataset, batch_size=recipe.batch_size, device=cpu, masks=True).epoch(0):
        step(batch)
    state.model.eval()
    return state


def draw(rows: list[Row], x: Tensor, path: Path) -> None:
    """Draw the photographs and rows of views; a last column where pixels stay in place."""
    columns = 2 * len(x) + any(difference is not None for *_, difference in rows)
    figure = Figure(figsize=(columns + 1.5, len(rows) + 1.3), layout="constrained")
    panels = figure.subplots(len(rows) + 1, columns)
    for axes in panels.flat:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    plain = [image for photograph in x for image in (photograph, None)]
    shown = [("image", plain, None), *rows]
    for line, (name, images, difference) in zip(panels, shown, strict=True):
        for axes, image in zip(line, [*images, difference], strict=False):
            if image is not None:
                pixels = image.detach().clamp(0, 1).permute(1, 2, 0).numpy()
                axes.imshow(pixels, interpolation="lanczos")
        line[0].set_ylabel(name.replace(":", ":\n"), rotation=0, ha="right", va="center")
    if columns > 2 * len(x):
        text = f"difference\nof the first,\n{LOUDER} x"
        panels[0][-1].text(0.5, 0, text, ha="center", transform=panels[0][-1].transAxes)
    # `make lint` compares these names with the policies of today.
    figure.savefig(path, dpi=110, metadata={"Description": " ".join(name for name, *_ in rows)})


def main() -> None:
    """Draw both pictures."""
    x, mask = photographs()
    rows = [row(name, x, mask) for name in image_views()]
    draw([r for r in rows if r[2] is None], x, PICTURES[0])
    draw([r for r in rows if r[2] is not None], x, PICTURES[1])


if __name__ == "__main__":
    main()
