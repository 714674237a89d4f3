"""Short loss curves, kept as text: a change of any number of a method shows in a review.

For a new method, or after a change that means to move a curve, write it anew:
`python tests/golden/test_curves.py NAME`; without a name, all of them.
"""

import sys
from pathlib import Path

import pytest
import torch

from widefield.config.recipes import make_recipe
from widefield.encoders import build_encoder
from widefield.methods import METHODS
from widefield.train.build import DataInfo, build
from widefield.train.step import set_learning_rate
from widefield.views import build_views

HERE = Path(__file__).parent
EXAMPLES, BATCH, EPOCHS = 24, 12, 6
TOLERANCE = 1e-5  # relative, or absolute where a cosine is near 0
# Other processors add in another order. In float32 twelve steps make 1e-3 of that for some losses;
# in float64 nothing that shows, so any difference is a change of the method.

SMALL = {"projector_width": 32, "projector_dim": 16}


def curve(name: str) -> list[float]:
    """Losses of six epochs of two steps in float64, from seeded images, weights and views."""
    sizes = {k: v for k, v in SMALL.items() if k in METHODS[name]().flat()}
    recipe = make_recipe(
        method=name, lr=1e-3, epochs=EPOCHS, batch_size=BATCH, warmup_epochs=1, **sizes
    )
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(EXAMPLES, 3, 16, 16, generator=generator).double()
    encoder = build_encoder("resnet-tiny", channels=3, image_size=16, seed=0).double()
    labels = {"class": torch.arange(EXAMPLES) % 3}
    facts = DataInfo(examples=EXAMPLES, image_size=16, labels=labels)
    state = build(recipe, facts, device=torch.device("cpu"), encoder=encoder)
    model, method, views = state.model.double(), state.method, build_views("expert")
    losses = []
    for step, rate in enumerate(state.rates.tolist(), start=1):
        index = torch.arange(BATCH) + BATCH * (step % 2)
        optimizers = [state.optimizer, *state.head_optimizers]
        for optimizer in optimizers:
            set_learning_rate(optimizer, rate)
        total, _ = model(views(images[index], method.view_count, generator), index)
        total.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        method.after_step()
        losses.append(float(total.detach()))
    return losses


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_curve_is_the_one_on_file(name: str) -> None:
    filed = [float(line) for line in (HERE / f"{name}.txt").read_text().split()]
    assert curve(name) == pytest.approx(filed, rel=TOLERANCE, abs=TOLERANCE)


def test_every_curve_on_file_belongs_to_a_method() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(METHODS)


if __name__ == "__main__":
    for each in sys.argv[1:] or METHODS:
        (HERE / f"{each}.txt").write_text("".join(f"{loss:.6f}\n" for loss in curve(each)))
