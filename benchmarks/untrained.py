"""Does an encoder's gain over itself untrained show without labels?

    python benchmarks/untrained.py DATA_FOLDER --json benchmarks/results/untrained.json

Four encoders, four data sets, five runs of each: the default; one epoch of it; a rate that is 30
times too high, or 300 times too low; and SimSiam, whose features may collapse, at ten times its
rate. 1,000 images. The verdict without labels is that of `pretrain`. What labels say is a linear
probe of the encoder and of the same one untrained, on 2,000 test images, each judged by a probe
that was fitted on others.

DATA_FOLDER holds train and test files of CIFAR-10, CIFAR-100 and MNIST; photographs are built in.
The file is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from study import Results, Run
from widefield.data import open_dataset
from widefield.encoders import Encoder, rate_of, untrained_like
from widefield.encoders.settings import EncoderSettings
from widefield.probes import extract
from widefield.recipes import make_recipe
from widefield.workflows.change import change
from widefield.workflows.evidence import Examination
from widefield.workflows.gain import compare_with_untrained
from widefield.workflows.pretrain import pretrain

ENCODERS = ("resnet-tiny", "mobilenetv3_small_050", "test_convnext", "test_vit")
DATA = ("cifar10", "cifar100", "mnist", "photos")
RUNS: dict[str, dict[str, Any]] = {
    "default": {"epochs": 12},
    "one epoch": {"epochs": 1},
    "rate x 30": {"epochs": 4, "rate": 30.0},
    "rate / 300": {"epochs": 4, "rate": 1 / 300},
    "simsiam, rate x 10": {"epochs": 4, "rate": 10.0, "method": "simsiam"},
}
CPU = torch.device("cpu")
IMAGES, TEST = 1000, {"photos": 1000}
SEED = 0


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, folder: Path, results: Path) -> None:
        self.folder = folder
        self.results = Results(results, _summary)
        self.untrained: dict[tuple[str, str], NDArray[np.bool_]] = {}

    def run(self, encoder: str, data: str, name: str) -> None:
        """Train once and ask for the evidence and the probe, unless that is done."""
        key = f"{encoder} | {data} | {name}"
        if key in self.results:
            return
        settings = dict(RUNS[name])
        rate = settings.pop("rate", None)
        if rate is not None:
            recipe = make_recipe(method=settings.get("method", "view-contrast"))
            settings["lr"] = rate * recipe.method.lr * rate_of(EncoderSettings(name=encoder))[0]
        began = time.process_time()
        run = {"encoder": encoder, "data": data, "name": name, "seed": SEED, **settings}
        try:
            with tempfile.TemporaryDirectory() as folder:
                done = pretrain(
                    self._spec(data, "train"),
                    out=Path(folder) / "run",
                    encoder=encoder,
                    limit=IMAGES,
                    seed=SEED,
                    checkpoint_every=10_000,
                    health_every=10_000,
                    quiet=True,
                    **settings,
                )
        except ValueError as error:
            self.results.add(key, {**run, "refused": str(error)})
            return
        run["processor_seconds"] = round(time.process_time() - began)
        run |= self._compared(done.encoder, data)
        self.results.add(key, run)

    def _compared(self, encoder: Encoder, data: str) -> Run:
        """Return the verdict without labels, and what labels say of run and untrained."""
        train = open_dataset(self._spec(data, "train"), limit=IMAGES, seed=SEED)
        gain = compare_with_untrained(encoder, train, seed=SEED, device=CPU)
        assert gain is not None
        key = (encoder.config.name, data)
        if key not in self.untrained:  # runs of one encoder follow each other
            self.untrained = {key: self._read(untrained_like(encoder, seed=SEED), data)}
        labels = change(self.untrained[key], self._read(encoder, data), seed=SEED)
        return {"gain": gain.to_json(), "labels": asdict(labels)}

    def _read(self, encoder: nn.Module, data: str) -> NDArray[np.bool_]:
        """Return which test images a linear probe reads, each one fitted on others."""
        test = open_dataset(
            self._spec(data, "test"), limit=TEST.get(data, 2000), seed=SEED, held_out=True
        )
        questions = Examination(test, seed=SEED, labels=True)
        questions.plants = {}
        return questions.of(partial(extract, encoder)).linear["class"]

    def _spec(self, data: str, split: str) -> str:
        return f"photos:{split}" if data == "photos" else f"{self.folder}/{data}_{split}.npz"


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {"command": "python benchmarks/untrained.py DATA_FOLDER", "seed": SEED}


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    study = Study(args.folder, args.json)
    for data, encoder, name in itertools.product(DATA, ENCODERS, RUNS):
        study.run(encoder, data, name)


if __name__ == "__main__":
    main()
