"""Does an encoder's gain over itself untrained show without labels?

    python benchmarks/untrained.py DATA_FOLDER --json benchmarks/results/untrained.json

Four encoders, four data sets, five runs of each: the default; one epoch of it; a rate that is 30
times too high, or 300 times too low; and SimSiam, whose features may collapse, at ten times its
rate. 1,000 images. The label-free evidence is gathered on them as `pretrain` does. What labels say
is a linear probe, on 2,000 test images, each judged by a probe that was fitted on others, of the
encoder and of the same one untrained.

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
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from study import Results, Run
from widefield.data import open_dataset
from widefield.diagnose.hypersphere import alignment, uniformity
from widefield.encoders import Encoder, rate_of, untrained_like
from widefield.encoders.settings import EncoderSettings
from widefield.probes import extract, pixels
from widefield.recipes import make_recipe
from widefield.workflows.change import change
from widefield.workflows.evidence import Evidence, Examination, Features
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
IMAGES, TEST = 1000, {"photos": 1000}
SEED = 0


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, folder: Path, results: Path) -> None:
        self.folder = folder
        self.results = Results(results, _summary)
        self.told: dict[tuple[str, str], _Told] = {}
        self.pixels: dict[str, _Told] = {}

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
        """Return what changed from the encoder untrained, and from pixels, and what labels say."""
        key = (encoder.config.name, data)
        if key not in self.told:  # runs of one encoder follow each other
            untrained = untrained_like(encoder, seed=SEED)
            self.told = {key: self._told(partial(extract, untrained), data)}
        if data not in self.pixels:
            self.pixels = {data: self._told(pixels, data)}
        run = self._told(partial(extract, encoder), data)
        found: Run = {}
        for name, other in {"untrained": self.told[key], "pixels": self.pixels[data]}.items():
            old, new = other.without_labels, run.without_labels
            found[name] = {
                "agreement": asdict(change(old.agreement, new.agreement)),
                "rank": [old.health.effective_rank, new.health.effective_rank],
                "health": [old.health.verdict, new.health.verdict],
                **{n: asdict(change(old.linear[n], new.linear[n])) for n in old.linear},
                "extra": [other.extra, run.extra],
                "labels": asdict(change(other.by_labels, run.by_labels)),
            }
        return found

    def _told(self, features: Features, data: str) -> "_Told":
        train = open_dataset(self._spec(data, "train"), limit=IMAGES, seed=SEED)
        test = open_dataset(
            self._spec(data, "test"), limit=TEST.get(data, 2000), seed=SEED, held_out=True
        )
        questions = Examination(train, seed=SEED, labels=False)
        evidence = questions.of(features)
        by_labels = Examination(test, seed=SEED, labels=True)
        by_labels.plants = {}
        return _Told(
            evidence, by_labels.of(features).linear["class"], _extra(evidence, questions, features)
        )

    def _spec(self, data: str, split: str) -> str:
        return f"photos:{split}" if data == "photos" else f"{self.folder}/{data}_{split}.npz"


class _Told(NamedTuple):
    """What one encoder, or pixels, makes of a data set."""

    without_labels: Evidence
    by_labels: NDArray[np.bool_]
    extra: Run


def _extra(evidence: Evidence, questions: Examination, features: Any) -> Run:
    h, v = evidence.features, features(questions._views)
    sims = functional.normalize(v, dim=1) @ functional.normalize(h, dim=1).T
    return {
        "found_again": float((sims.argmax(1) == torch.arange(len(h))).double().mean()),
        "alignment": alignment(h, v),
        "uniformity": uniformity(h),
    }


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
