"""Steps of our methods beside SimCLR in the loop of lightly's documentation.

Run by `python -m benchmarks.ratios.lightly_loop --json benchmarks/results/bench_lightly_loop.json`;
it needs lightly, which is installed for this comparison alone.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from widefield.config.recipes import make_recipe
from widefield.core.hardware import choose_device
from widefield.data import Loader
from widefield.encoders import build_encoder
from widefield.train.distributed import single_process

from .command import Result, command
from .step import bare_step, method_step, random_images
from .timing import TOLERANCE, steady_ratio, turn_by_turn

METHODS = ("s-diet", "view-contrast", "simclr")


class PilImages(torch.utils.data.Dataset[list[torch.Tensor]]):
    """Images as PIL's, as lightly's transforms take them."""

    def __init__(self, images: Any, transform: Callable[[Image.Image], list[torch.Tensor]]) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> list[torch.Tensor]:
        return self.transform(Image.fromarray(self.images[i]))


def bench(
    *,
    encoder: str = "resnet-tiny",
    batch_size: int = 256,
    image_size: int = 32,
    rows: int = 2_048,
    rounds: int = 10,
    tolerance: float = TOLERANCE,
) -> Result:
    """Measure processor seconds per step, turn by turn in one process, on the same images.

    lightly's loop has its transform, projection head, loss and optimizer, without worker processes,
    so that all of its time is counted; autocast to bfloat16 is added where ours has it.

    Returns:
        `ratios`: images per second of each method over those of lightly's loop; `values`: median
        seconds of each step, of the views of lightly alone and of the bare encoder.

    Raises:
        ValueError: a ratio differs by more than `tolerance` between the halves of the rounds.
    """
    device = choose_device("auto")
    dataset = random_images(rows, image_size)
    loader = Loader(dataset, batch_size=batch_size, device=device)
    steps = {
        "lightly": lightly_step(encoder, batch_size, dataset.images, device),
        "lightly_views": lightly_views(dataset.images, batch_size),
        "bare": bare_step(encoder, loader, device),
    }
    for name in METHODS:
        recipe = make_recipe(method=name, encoder=encoder, batch_size=batch_size)
        steps[name] = method_step(recipe, loader, dataset, device)
    seconds = turn_by_turn(steps, rounds, device, time.process_time)
    return {
        "ratios": {
            f"{name}/lightly": steady_ratio(name, seconds["lightly"], seconds[name], tolerance)
            for name in METHODS
        },
        "values": {f"{name}_seconds": statistics.median(times) for name, times in seconds.items()}
        | {"encoder": encoder, "batch_size": batch_size, "image_size": image_size, "rows": rows},
    }


def lightly_step(
    encoder: str, batch_size: int, images: NDArray[np.uint8], device: torch.device
) -> Callable[[], None]:
    """Return a step of lightly's loop: views, encoder, projection head, loss and SGD."""
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead

    compute = single_process(device)
    backbone = build_encoder(encoder, image_size=images.shape[1], seed=0).to(device)
    head = SimCLRProjectionHead(backbone.dim, 512, 128).to(device)
    criterion, batches = NTXentLoss(), lightly_views(images, batch_size)
    weights = [*backbone.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.06)

    def step() -> None:
        x0, x1 = batches()
        with compute.autocast():
            z0, z1 = (head(backbone(*compute.cast([x.to(device)]))) for x in (x0, x1))
        criterion(z0.float(), z1.float()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def lightly_views(images: NDArray[np.uint8], batch_size: int) -> Callable[[], list[torch.Tensor]]:
    """Return what draws the two views of the next batch, by lightly's transform."""
    from lightly.transforms import SimCLRTransform

    data = PilImages(images, SimCLRTransform(images.shape[1], gaussian_blur=0.0, normalize=None))
    loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True, drop_last=True)

    def batches() -> Iterator[list[torch.Tensor]]:
        while True:
            yield from loader

    drawn = batches()
    return lambda: next(drawn)


if __name__ == "__main__":
    command(bench)
