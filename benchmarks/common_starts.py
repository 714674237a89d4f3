"""What do ten common starts cost: weights, license, memory and time of `widefield plan`.

    python benchmarks/common_starts.py --json benchmarks/results/common_starts.json

Images of 64 pixels in batches of 16, or of the nearest size that the patches divide. No weights are
needed, because the cost does not depend on them. Seconds are those of the processor, on one thread,
for 1,000 images of an epoch; memory is the expected peak of the process. The file is rewritten
after every start, and starts that it already holds are not repeated.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import timm
import torch

from widefield.core.hardware import choose_device, machine
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
    """Measure each start that is not in the file yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    found = json.loads(args.json.read_text())["starts"] if args.json.exists() else {}
    for name in STARTS:
        if name not in found:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                found[name] = pool.submit(cost, name).result()  # with a peak of its own
            about = {"machine": machine(choose_device("cpu")), "seed": 0, "batch_size": BATCH}
            args.json.write_text(json.dumps(about | {"starts": found}, indent=1) + "\n")
            print(name, found[name], flush=True)


if __name__ == "__main__":
    main()
