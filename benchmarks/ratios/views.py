"""How fast views are drawn: ours beside kornia's on batches and torchvision's image by image.

Run by `python -m benchmarks.ratios.views --json benchmarks/results/bench_views.json`.
"""

import importlib.util
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2.functional import to_pil_image

from widefield.core.hardware import choose_device
from widefield.views import build_views

from .command import Result, command
from .timing import TOLERANCE, steady_ratio, turn_by_turn

Draw = Callable[[], object]


def bench(
    *,
    batch_size: int = 256,
    image_size: int = 32,
    rounds: int = 20,
    tolerance: float = TOLERANCE,
) -> Result:
    """Images per second of one expert view of a batch, turn by turn in one process.

    All draw S-DIET's views (crop, flip, color jitter, grayscale) of the same color images with
    the same number of threads: ours and kornia's as one batch on the device, torchvision's one
    image at a time on the CPU, where data loaders run it, both on tensors and on the PIL images
    that files are opened as. Without kornia its ratio is left out.

    Returns:
        `ratios`: median over the rounds of our speed over theirs; `values`: median speeds.

    Raises:
        ValueError: a ratio differs by more than `tolerance` between the halves of the rounds.
    """
    device = choose_device("auto")
    x = torch.rand(
        batch_size, 3, image_size, image_size, generator=torch.Generator().manual_seed(0)
    )
    contestants = {
        "widefield": _widefield(x.to(device)),
        "torchvision": _torchvision(x),
        "torchvision_pil": _torchvision_pil(x),
    }
    if importlib.util.find_spec("kornia") is not None:
        contestants["kornia"] = _kornia(x.to(device))
    seconds = turn_by_turn(contestants, rounds, device, time.perf_counter)
    ours = seconds["widefield"]
    return {
        "ratios": {
            f"widefield/{name}": steady_ratio(f"widefield/{name}", baseline, ours, tolerance)
            for name, baseline in seconds.items()
            if name != "widefield"
        },
        "values": {
            f"{name}_images_per_second": batch_size / statistics.median(times)
            for name, times in seconds.items()
        }
        | {"batch_size": batch_size, "image_size": image_size, "threads": torch.get_num_threads()},
    }


def _widefield(x: Tensor) -> Draw:
    views = build_views("expert")
    generator = torch.Generator(x.device).manual_seed(0)
    return lambda: views(x, 1, generator)


def _torchvision(x: Tensor) -> Draw:
    view = _torchvision_view(x)
    return lambda: torch.stack([view(image) for image in x])


def _torchvision_pil(x: Tensor) -> Draw:
    to_tensor = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    view = v2.Compose([_torchvision_view(x), *to_tensor])
    images = [to_pil_image(image) for image in x]
    return lambda: torch.stack([view(image) for image in images])


def _torchvision_view(x: Tensor) -> v2.Compose:
    return v2.Compose(
        [
            v2.RandomResizedCrop(x.shape[-2:], scale=(0.08, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            v2.RandomGrayscale(0.2),
        ]
    )


def _kornia(x: Tensor) -> Draw:
    import kornia.augmentation as augmentation

    view = augmentation.AugmentationSequential(
        augmentation.RandomResizedCrop(tuple(x.shape[-2:]), scale=(0.08, 1.0)),
        augmentation.RandomHorizontalFlip(),
        augmentation.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        augmentation.RandomGrayscale(p=0.2),
    )
    return lambda: view(x)


if __name__ == "__main__":
    command(bench)
