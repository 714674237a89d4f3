"""How are the columns of the wide readout best chosen from the maps of earlier stages?

    python benchmarks/readout_reductions.py DATA_FOLDER --runs FOLDER \
        --json benchmarks/results/readout_reductions.json

Encoders of benchmarks/readout_floors.py: resnet-tiny trained without labels on the 2,000 examples,
and on labels of CIFAR-100; FOLDER is that of the command there. To the pooled features, each
reduction adds 384 columns from the sources of the readout, 2,816 columns in all on images of three
channels. A linear probe is fitted on the 2,000 training examples, and scored on 2,000 others of the
training file; of the recordings, which are fewer, on 1,000 others that no choice is made on.

- residual PCA: the readout as it is;
- residuals: the same directions, but the residuals along them, with variance 1;
- PCA: the leading directions of each source itself;
- random: random directions of each source;
- group lasso: columns of the sources, chosen by the labels of the task (Yuan & Lin 2006): the
  smallest penalty on the norm of a column's weights at which at most 384 columns have any;
- all: no reduction.

The file of results is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from readout_floors import CPU, LABELS, TRAIN, Sets, Study, has, open_sets, probed
from study import Results, validation_sets
from widefield.encoders import Encoder
from widefield.encoders.readout import (
    EXTRA,
    inverse_deviation,
    leading_directions,
    source_features,
)
from widefield.evaluation.wide import fit_on_dataset
from widefield.probes.features import image_batch

DATA = {"cifar10": "", "cifar10+digits": "+digits", "mnist": "", "spoken": ""}
STARTS = ("view-contrast", LABELS)
SEEDS = (0, 1, 2)
SCORED, BATCH = 2000, 250
STEPS, PENALTIES = 200, torch.logspace(-1, -4, 25)
COMMAND = "python benchmarks/readout_reductions.py DATA_FOLDER --runs FOLDER"

Pair = tuple[Tensor, Tensor]
"""Features [n, K] of the training examples, and of those that are scored."""


def standardized(fit: Tensor, scored: Tensor) -> Pair:
    """Return columns with mean 0 and variance 1 on the first; constant ones become 0."""
    mean, scale = fit.mean(0), inverse_deviation(fit.std(0))
    return (fit - mean) * scale, (scored - mean) * scale


def residuals(h: Pair, sources: list[Pair], widths: list[int]) -> Pair:
    """Return what h and the columns so far leave of each source, along its leading directions."""
    output = h
    for source, width in zip(sources, widths, strict=True):
        solution = torch.linalg.lstsq(output[0], source[0]).solution
        left = source[0] - output[0] @ solution, source[1] - output[1] @ solution
        v = leading_directions(left[0], width)
        new = standardized(left[0] @ v, left[1] @ v)
        output = joined([output, new])
    return output


def along(
    h: Pair, sources: list[Pair], widths: list[int], directions: Callable[..., Tensor]
) -> Pair:
    """Return h and each source along `directions(source, width)`, standardized."""
    parts = [h]
    for source, width in zip(sources, widths, strict=True):
        v = directions(source[0], width)
        parts.append(standardized(source[0] @ v, source[1] @ v))
    return joined(parts)


def random_directions(source: Tensor, width: int) -> Tensor:
    """Return Gaussian directions [K, width]."""
    return torch.randn(source.shape[1], width, generator=torch.Generator().manual_seed(0))


def by_group_lasso(h: Pair, sources: list[Pair], y: Tensor, classes: int) -> Pair:
    """Return h and the columns of the sources that a group lasso chooses for labels y[n]."""
    columns = joined(sources)
    weight, chosen = torch.zeros(columns[0].shape[1], classes), torch.arange(0)
    for penalty in PENALTIES:
        weight = group_lasso(columns[0], y, weight, float(penalty))
        norms = weight.norm(dim=1)
        if int((norms > 0).sum()) > EXTRA:
            break
        chosen = norms.nonzero()[:, 0]
    return joined([h, (columns[0][:, chosen], columns[1][:, chosen])])


def group_lasso(x: Tensor, y: Tensor, weight: Tensor, penalty: float) -> Tensor:
    """Return argmin_W CE(x W + b, y) + penalty sum_j |W_j|, W_j the weights of column j, [K, C].

    Proximal gradient steps with momentum (FISTA, Beck & Teboulle 2009), from `weight`.
    """
    target = functional.one_hot(y, weight.shape[1]).float()
    bias = target.mean(0).clamp_min(1e-6).log()
    rate = 2 * len(x) / float(torch.linalg.matrix_norm(x, 2)) ** 2
    ahead, momentum = weight, 1.0
    for _ in range(STEPS):
        error = (x @ ahead + bias).softmax(1) - target
        moved = ahead - rate * (x.T @ error) / len(x)
        norm = moved.norm(dim=1, keepdim=True)
        shrunk = moved * (1 - rate * penalty / norm.clamp_min(1e-12)).clamp_min(0)
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = shrunk + (momentum - 1) / faster * (shrunk - weight)
        weight, momentum = shrunk, faster
    return weight


def joined(parts: list[Pair]) -> Pair:
    """Return all columns side by side."""
    fit, scored = zip(*parts, strict=True)
    return torch.cat(fit, dim=1), torch.cat(scored, dim=1)


def scored(encoder: Encoder, sets: Sets) -> dict[str, dict[str, float]]:
    """Return the accuracy of each task for each reduction."""
    readout = fit_on_dataset(encoder, sets.train, device=CPU)
    kept, raw = readout.config.sources, []
    for dataset in (sets.train, sets.test):
        parts = [
            source_features(encoder, x, kept) for x in image_batch(dataset.images, CPU).split(BATCH)
        ]
        raw.append(
            (
                torch.cat([h for h, _ in parts]),
                [torch.cat(s) for s in zip(*(s for _, s in parts), strict=True)],
            )
        )
    (fit_h, fit_sources), (other_h, other_sources) = raw
    h = standardized(fit_h, other_h)
    sources = [standardized(*pair) for pair in zip(fit_sources, other_sources, strict=True)]
    widths = [source.width for source in kept]
    found = {
        "pooled": h,
        "residual PCA": (readout(*raw[0]), readout(*raw[1])),
        "residuals": residuals(h, sources, widths),
        "PCA": along(h, sources, widths, leading_directions),
        "random": along(h, sources, widths, random_directions),
        "all": joined([h, *sources]),
    }
    accuracy = {name: probed(pair, sets) for name, pair in found.items()}
    accuracy["group lasso"] = {
        task: probed(by_group_lasso(h, sources, torch.from_numpy(y), len(names)), sets)[task]
        for task, y in sets.train.labels.items()
        for names in [sets.train.classes[task]]
    }
    return accuracy


def validation(folder: Path, data: str, seed: int) -> Sets:
    """Return the training examples, and others to score that are not those of the tests."""
    sets = open_sets(folder, data, seed)
    if data == "spoken":
        return sets
    base, plant = data.partition("+")[0], DATA[data]
    train, others = validation_sets(folder / f"{base}_train.npz", plant, TRAIN, seed, image_size=32)
    return replace(sets, train=train, test=others.subset(np.arange(SCORED)))


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    results = Results(args.json, lambda runs: {"command": COMMAND})
    encoders = Study(args.folder, args.runs, args.json)
    for seed, data, start in itertools.product(SEEDS, DATA, STARTS):
        key = f"{data} | {start} | seed {seed}"
        if key in results or not has(data, "resnet-tiny", start, seed):
            continue
        sets = validation(args.folder, data, seed)
        encoder = encoders.build(data, "resnet-tiny", start, seed, sets).eval()
        shown = sets if data == "spoken" else sets.with_channels(encoder.config.channels)
        with torch.no_grad():
            accuracy = scored(encoder, shown)
        run: dict[str, Any] = {"data": data, "start": start, "seed": seed}
        results.add(key, {**run, "accuracy": accuracy})
        print(key, accuracy, flush=True)


if __name__ == "__main__":
    main()
