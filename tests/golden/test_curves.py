"""Short loss curves, kept as text: a change of any number of a method shows in a review.

After a change that means to move them: `python tests/golden/test_curves.py`.
"""

from pathlib import Path

import pytest
import torch

from widefield.encoders import build_encoder
from widefield.methods import METHODS, RunFacts, build_method
from widefield.recipe import Recipe
from widefield.train.loop import Objective
from widefield.train.optim import build_optimizer, learning_rates, set_learning_rate
from widefield.views import build_views

HERE = Path(__file__).parent
EXAMPLES, BATCH, EPOCHS = 24, 12, 6
TOLERANCE = 1e-5  # relative, or absolute where a cosine is near 0
# Other processors add in another order. In float32 twelve steps make 1e-3 of that for some losses;
# in float64 nothing that shows, so any difference is a change of the method.


def curve(name: str) -> list[float]:
    """Losses of six epochs of two steps in float64, from seeded images, weights and views."""
    recipe = Recipe.named(method=name, projector_width=32, projector_dim=16, lr=1e-3)
    rates = learning_rates(recipe.lr, steps=2 * EPOCHS, warmup_steps=2)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(EXAMPLES, 3, 16, 16, generator=generator).double()
    encoder = build_encoder("resnet-tiny", channels=3, image_size=16, seed=0).double()
    facts = RunFacts(
        encoder=encoder,
        feature_dim=encoder.dim,
        examples=EXAMPLES,
        labels={"class": torch.arange(EXAMPLES) % 3},
        learning_rates=rates,
        device=torch.device("cpu"),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        method = build_method(recipe, facts).double()
    objective = Objective(encoder, method)
    optimizer, views = build_optimizer(encoder, method, recipe), build_views("expert")
    losses = []
    for step, rate in enumerate(rates.tolist(), start=1):
        index = torch.arange(BATCH) + BATCH * (step % 2)
        set_learning_rate(optimizer, rate)
        total, _ = objective(views(images[index], method.view_count, generator), index)
        total.backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(encoder, step, rate)
        losses.append(float(total.detach()))
    return losses


@pytest.mark.parametrize("name", METHODS)
def test_the_loss_curve_is_the_one_on_file(name: str) -> None:
    filed = [float(line) for line in (HERE / f"{name}.txt").read_text().split()]
    assert curve(name) == pytest.approx(filed, rel=TOLERANCE, abs=TOLERANCE)


def test_every_curve_on_file_belongs_to_a_method() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == set(METHODS)


if __name__ == "__main__":
    for each in METHODS:
        (HERE / f"{each}.txt").write_text("".join(f"{loss:.6f}\n" for loss in curve(each)))
