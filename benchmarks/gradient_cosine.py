"""Does S-DIET's batch cross-entropy pull the encoder where DIET's full one would?

    python benchmarks/gradient_cosine.py cifar100_train.npz \
        --json benchmarks/results/gradient_cosine.json

At random initialization, with random rows for all n examples of the data, a batch of views gives
two gradients of the same parameters: of the cross-entropy over all n rows, and over the rows of
the batch alone, both with label smoothing 0.8 as published. Printed is their cosine for each seed,
which draws encoder, projector, rows and views anew, beside the values of S-DIET (2025), table 2,
for CIFAR-100.

`encoder` is the paper's base model, what is kept after training; `encoder and projector` is all
that the loss trains besides the rows. The file is rewritten after every batch, and what it already
holds is not repeated.
"""

import argparse
import itertools
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from study import Results, Run
from widefield.config.recipes import make_recipe
from widefield.core.hardware import choose_device
from widefield.data import Dataset, Loader, open_dataset
from widefield.encoders import Encoder
from widefield.head import batch_cross_entropy, initial_rows
from widefield.methods import SDietConfig
from widefield.views import build_views

PAPER = {
    "resnet18": {64: 0.9944, 128: 0.9965, 256: 0.9975, 512: 0.9980},
    "resnet50": {64: 0.9960, 128: 0.9980, 256: 0.9990, 512: 0.9995},
}


def published() -> SDietConfig:
    """Return the settings of the paper."""
    settings = make_recipe("s-diet-paper").method
    assert isinstance(settings, SDietConfig)
    return settings


def flat_gradient(loss: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Gradient of `loss` as one vector, float64; the graph stays for another loss."""
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
    return torch.cat([g.flatten().double() for g in gradients])


def cosines(
    encoder: nn.Module, projector: nn.Module, view: Tensor, index: Tensor, rows: Tensor
) -> dict[str, float]:
    """Cosine of the two losses' gradients at one batch of views [b, C, H, W]."""
    settings = published()
    z = F.normalize(projector(encoder(view)), dim=1)
    smoothing = settings.label_smoothing
    full = F.cross_entropy(z @ rows.T, index, label_smoothing=smoothing)
    batch = batch_cross_entropy(z, rows[index], scale=settings.logit_scale, smoothing=smoothing)
    trained = [*encoder.parameters(), *projector.parameters()]
    first, second = (flat_gradient(loss, trained) for loss in (full, batch))
    base = sum(p.numel() for p in encoder.parameters())
    return {
        "encoder": float(F.cosine_similarity(first[:base], second[:base], dim=0)),
        "encoder and projector": float(F.cosine_similarity(first, second, dim=0)),
    }


def measure(dataset: Dataset, encoder_name: str, batch_size: int, seed: int) -> dict[str, float]:
    """Cosines at one batch, with an encoder, projector and rows of its own."""
    device, settings = choose_device("auto"), published()
    encoder = build_encoder(dataset, encoder_name, seed).to(device).train()
    torch.manual_seed(seed)
    projector = settings.projector.build(encoder.dim).to(device).train()
    rows = initial_rows(
        torch.arange(len(dataset), device=device),
        settings.projector.dim,
        seed=seed,
        dtype=torch.float32,
    )
    batch = next(iter(Loader(dataset, batch_size=batch_size, device=device).epoch(seed)))
    generator = torch.Generator(device).manual_seed(seed)
    (view,) = build_views("expert")(batch.x, 1, generator)
    return cosines(encoder, projector, view, batch.index.to(device), rows)


def build_encoder(dataset: Dataset, name: str, seed: int) -> Encoder:
    """Return the encoder of the paper's recipe."""
    mean, std = dataset.channel_mean_std()
    encoder = replace(make_recipe("s-diet-paper").encoder, name=name).build(
        image_size=dataset.images.shape[1], mean=mean, std=std, seed=seed
    )
    if name == "resnet50":  # a batch's activations would take tens of gigabytes
        encoder.backbone.set_grad_checkpointing()
    return encoder


def summary(runs: dict[str, Run]) -> dict[str, Any]:
    """Return means over the seeds, beside the paper."""
    rows: dict[tuple[str, int], list[Run]] = {}
    for run in runs.values():
        rows.setdefault((run["encoder"], run["batch_size"]), []).append(run)
    return {
        "command": "python benchmarks/gradient_cosine.py cifar100_train.npz",
        "data": next(iter(runs.values()))["data"],
        "results": [
            {
                "network": encoder,
                "batch_size": size,
                "seeds": len(of_size),
                "paper_cifar100": PAPER[encoder][size],
                **{name: _mean(of_size, name) for name in of_size[0]["cosine"]},
            }
            for (encoder, size), of_size in rows.items()
        ],
    }


def _mean(runs: list[Run], name: str) -> float:
    return round(statistics.mean(run["cosine"][name] for run in runs), 5)


def main() -> None:
    """Measure what the file lacks, and print it beside the paper."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="a CIFAR-100 pack, or any data that pretrain takes")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--encoder", choices=tuple(PAPER), action="append")
    parser.add_argument("--batch-size", type=int, choices=(64, 128, 256, 512), action="append")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    dataset, results = open_dataset(args.data), Results(args.json, summary)
    sizes, encoders = args.batch_size or (64, 128, 256, 512), args.encoder or PAPER
    for encoder, size, seed in itertools.product(encoders, sizes, range(args.seeds)):
        key = f"{encoder} | batch {size} | seed {seed}"
        if key not in results:
            cosine = measure(dataset, encoder, size, seed)
            about = {"encoder": encoder, "batch_size": size, "seed": seed}
            results.add(key, {"data": Path(args.data).name, **about, "cosine": cosine})
        measured = results.runs[key]["cosine"]
        print(
            f"{key}: {measured['encoder']:.4f} encoder, "
            f"{measured['encoder and projector']:.4f} with projector; "
            f"paper, CIFAR-100: {PAPER[encoder][size]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
