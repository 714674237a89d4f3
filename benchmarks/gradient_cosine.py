"""Does S-DIET's batch cross-entropy pull the encoder where DIET's full one would?

    python benchmarks/gradient_cosine.py cifar10_train.npz \
        --json benchmarks/results/gradient_cosine.json

At random initialisation, with random rows for all n examples of the data, a batch of views gives
two gradients of the same parameters: of the cross-entropy over all n rows, and over the rows of
the batch alone, both with label smoothing 0.8 as published. Printed is their cosine, the mean over
a few batches, beside the values of S-DIET (2025), which are for CIFAR-100.

`encoder` is the paper's base model, what is kept after training; `encoder and projector` is all
that the loss trains besides the rows.
"""

import argparse
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.data import Loader, open_dataset
from widefield.methods import SDietSettings
from widefield.recipes import make_recipe
from widefield.rows import batch_cross_entropy, initial_rows
from widefield.train.hardware import choose_device, machine
from widefield.views import build_views

PAPER = {
    "resnet18": {64: 0.9944, 128: 0.9965, 256: 0.9975, 512: 0.9980},
    "resnet50": {64: 0.9960, 128: 0.9980, 256: 0.9990, 512: 0.9995},
}


def published() -> SDietSettings:
    """Return the settings of the paper."""
    settings = make_recipe("s-diet-paper").method
    assert isinstance(settings, SDietSettings)
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


def measure(data: str, encoder_name: str, batch_size: int, batches: int) -> dict[str, list[float]]:
    """Cosines at `batches` batches, each with its own encoder, projector and rows."""
    device, settings = choose_device("auto"), published()
    dataset = open_dataset(data)
    mean, std = dataset.channel_mean_std()
    loader = Loader(dataset, batch_size=batch_size, device=device)
    views, values = build_views("expert"), dict[str, list[float]]()
    for seed, batch in zip(range(batches), loader.epoch(0), strict=False):
        encoder = replace(make_recipe("s-diet-paper").encoder, name=encoder_name).build(
            image_size=dataset.images.shape[1], mean=mean, std=std, seed=seed
        )
        torch.manual_seed(seed)
        projector = settings.projector.build(encoder.dim)
        rows = initial_rows(
            torch.arange(len(dataset), device=device),
            settings.projector.dim,
            seed=seed,
            dtype=torch.float32,
        )
        (view,) = views(batch.x, 1, torch.Generator(device).manual_seed(seed))
        encoder, projector = encoder.to(device).train(), projector.to(device).train()
        index = batch.index.to(device)
        for name, value in cosines(encoder, projector, view, index, rows).items():
            values.setdefault(name, []).append(value)
    return values


def main() -> None:
    """Measure every batch size, print beside the paper, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="a CIFAR-10 pack, or any data that pretrain takes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--encoder", choices=tuple(PAPER), default="resnet18")
    parser.add_argument("--batches", type=int, default=2)
    parser.add_argument("--batch-size", type=int, action="append")
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    for size in args.batch_size or PAPER[args.encoder]:
        measured = measure(args.data, args.encoder, size, args.batches)
        means = {name: round(statistics.mean(values), 5) for name, values in measured.items()}
        paper = PAPER[args.encoder].get(size)
        results.append({"batch_size": size, "paper_cifar100": paper, **means, "values": measured})
        print(
            f"batch {size:4}: {means['encoder']:.4f} encoder, "
            f"{means['encoder and projector']:.4f} with projector; paper, CIFAR-100: {paper}"
        )
    if args.json:
        report = {
            "command": "python benchmarks/gradient_cosine.py cifar10_train.npz",
            "machine": machine(choose_device("auto")),
            "data": Path(args.data).name,
            "encoder": args.encoder,
            "batches": args.batches,
            "seeds": list(range(args.batches)),
            "results": results,
        }
        args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
