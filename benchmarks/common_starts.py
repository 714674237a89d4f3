"""What do ten common starts cost: weights, license, memory and time of `widefield plan`.

    python benchmarks/common_starts.py --json benchmarks/results/common_starts.json

Images of 64 pixels in batches of 16, or of the nearest size that the patches divide. No weights are
needed, because the cost does not depend on them. Seconds are those of the processor, on one thread,
for 1,000 images of an epoch; memory is the expected peak of the process.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any
from unittest import mock

import numpy as np
import timm
import torch

from ratios.command import Result, command
from widefield.core.types import InputSpec
from widefield.encoders import EncoderSettings
from widefield.workflows.plan import plan

STARTS = (
    "resnet18.a1_in1k",
    "resnet50.a1_in1k",
    "convnext_tiny.in12k_ft_in1k",
    "efficientnet_b0.ra_in1k",
    "vit_small_patch16_224.dino",
    "vit_base_patch16_224.mae",
    "vit_base_patch16_clip_224.openai",
    "vit_small_patch14_dinov2.lvd142m",
    "vit_base_patch14_dinov2.lvd142m",
    "vit_small_patch16_dinov3.lvd1689m",
)
SIDE, BATCH, IMAGES = 64, 16, 96


def bench(*, starts: list[str] | None = None) -> Result:
    """Return the cost of each start, in a process with a peak of its own."""
    costs = {}
    for name in starts or STARTS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            costs[name] = pool.submit(cost, name).result()
    return {"seed": 0, "batch_size": BATCH, "starts": costs}


def cost(name: str) -> dict[str, Any]:
    """Return what is known of a start, and the cost of a run from it."""
    torch.set_num_threads(1)
    cfg = timm.get_pretrained_cfg(name)
    assert cfg is not None
    side = SIDE - SIDE % 14 if "patch14" in name else SIDE
    pixels = np.random.default_rng(0).integers(0, 256, (IMAGES, side, side, 3), dtype=np.uint8)
    settings: dict[str, Any] = {"encoder": name, "stem": "native", "batch_size": BATCH}
    with mock.patch("widefield.workflows.plan.time.perf_counter", time.process_time):
        ahead = plan(pixels, **settings, method="view-contrast", device="cpu")
    encoder = EncoderSettings(name=name, stem="native")
    network = encoder.build(InputSpec(image_size=side), seed=0)
    return {
        "weights": sum(p.numel() for p in network.parameters()),
        "features": network.dim,
        "trained_at": cfg.input_size[-1],
        "image_size": side,
        "license": cfg.license,
        "host_bytes": ahead.host_bytes,
        "seconds_per_1000": round(1000 * ahead.epoch_seconds / IMAGES, 1),
    }


def main() -> None:
    """Measure as the command line says."""
    command(bench)


if __name__ == "__main__":
    main()
