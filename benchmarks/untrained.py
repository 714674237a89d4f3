"""Does an encoder's gain over itself untrained show without labels?

    python benchmarks/untrained.py DATA_FOLDER --runs FOLDER \
        --json benchmarks/results/untrained.json

Four encoders, four data sets, five runs of each: the default; one epoch of it; a rate that is 30
times too high, or 300 times too low; and SimSiam, whose features may collapse, at ten times its
rate. Rows take the encoder's rate. 1,000 images. The rule of the verdict was made on runs of other
seeds, so that these are its test. The verdict without labels is that of `pretrain`. What labels
say is a linear probe of the encoder and of the same one untrained, on 2,000 test images, each
judged by a probe that was fitted on others.

DATA_FOLDER holds train and test files of CIFAR-10, CIFAR-100 and MNIST; photographs are built in.
Runs are kept in the folder `--runs`, and those that ended there are not trained again. The results
file is rewritten after every run, and runs that it already holds are not asked about again.
"""

import argparse
import itertools
import re
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from study import Results, Run
from widefield.config.defaults import LR_SCALES
from widefield.config.recipes import make_recipe
from widefield.data import open_dataset
from widefield.encoders import Encoder, family_of, load_encoder, untrained_like
from widefield.encoders.settings import EncoderSettings
from widefield.evaluation.comparison import compare_with_baseline
from widefield.evaluation.cross_fit import cross_fit
from widefield.evaluation.paired import paired_difference
from widefield.probes import extract
from widefield.workflows.pretrain import pretrain

ENCODERS = ("resnet-tiny", "mobilenetv3_small_050", "test_convnext", "test_vit")
DATA = ("cifar10", "cifar100", "mnist", "photos")
RUNS: dict[str, dict[str, Any]] = {
    "default": {"epochs": 12, "head_lr_scale": 1.0},
    "one epoch": {"epochs": 1, "head_lr_scale": 1.0},
    "rate x 30": {"epochs": 4, "rate": 30.0},
    "rate / 300": {"epochs": 4, "rate": 1 / 300},
    "simsiam, rate x 10": {"epochs": 4, "rate": 10.0, "method": "simsiam"},
}
CPU = torch.device("cpu")
IMAGES, TEST = 1000, {"photos": 1000}
SEEDS = (6,)


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, data: Path, runs: Path, results: Path, seed: int) -> None:
        self.data, self.runs, self.seed = data, runs, seed
        self.results = Results(results, _summary)
        self.untrained: dict[tuple[str, str], NDArray[np.bool_]] = {}

    def run(self, encoder: str, data: str, name: str) -> None:
        """Train once and ask for the evidence and the probe, unless that is done."""
        key = f"{encoder} | {data} | {name} | seed {self.seed}"
        if key in self.results:
            return
        run = {"encoder": encoder, "data": data, "name": name, "seed": self.seed}
        try:
            trained = self._trained(encoder, data, name)
        except ValueError as error:
            self.results.add(key, run | {"refused": str(error)})
            return
        self.results.add(key, run | self._compared(trained, data))

    def _trained(self, encoder: str, data: str, name: str) -> Encoder:
        """Return the encoder of a run, which is trained unless it is there."""
        slug = re.sub(r"[^a-z0-9]+", "-", name)
        kept = self.runs / str(self.seed) / f"{encoder}-{data}-{slug}"
        if kept.exists():
            return load_encoder(kept)
        settings = dict(RUNS[name])
        rate = settings.pop("rate", None)
        if rate is not None:
            recipe = make_recipe(method=settings.get("method", "view-contrast"))
            settings["lr"] = (
                rate * recipe.method.lr * LR_SCALES[family_of(EncoderSettings(name=encoder))]
            )
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
            done = pretrain(
                self._spec(data, "train"),
                out=Path(folder) / "run",
                encoder=encoder,
                max_examples=IMAGES,
                seed=self.seed,
                checkpoint_every=10_000,
                health_every=10_000,
                quiet=True,
                **settings,
            )
            done.run.rename(kept)
        return done.encoder

    def _compared(self, encoder: Encoder, data: str) -> Run:
        """Return the verdict without labels, and what labels say of run and untrained."""
        train = open_dataset(self._spec(data, "train"), max_examples=IMAGES, seed=self.seed)
        found = compare_with_baseline(encoder, train, seed=self.seed, device=CPU, use_labels=False)
        assert found is not None
        key = (encoder.config.name, data)
        if key not in self.untrained:  # runs of one encoder follow each other
            self.untrained = {key: self._read(untrained_like(encoder, seed=self.seed), data)}
        labels = paired_difference(self.untrained[key], self._read(encoder, data), seed=self.seed)
        return {"comparison": found.to_json(), "labels": asdict(labels)}

    def _read(self, encoder: nn.Module, data: str) -> NDArray[np.bool_]:
        """Return which test images a linear probe reads, each one fitted on others."""
        test = open_dataset(
            self._spec(data, "test"),
            max_examples=TEST.get(data, 2000),
            seed=self.seed,
            held_out=True,
        )
        labels = {"class": test.labels["class"]}
        return cross_fit(extract(encoder, test.images), labels, seed=self.seed)["class"].linear

    def _spec(self, data: str, split: str) -> str:
        return f"photos:{split}" if data == "photos" else f"{self.data}/{data}_{split}.npz"


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/untrained.py DATA_FOLDER --runs FOLDER"}


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--data", choices=DATA, action="append")
    args = parser.parse_args()
    for seed, data in itertools.product(args.seed or SEEDS, args.data or DATA):
        study = Study(args.folder, args.runs, args.json, seed)
        for encoder, name in itertools.product(ENCODERS, RUNS):
            study.run(encoder, data, name)


if __name__ == "__main__":
    main()
