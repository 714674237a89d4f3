"""What does going on from an encoder gain over the encoder as it is, and over starting anew?

    python benchmarks/start_table.py DATA_FOLDER --json benchmarks/results/start_table.json

Three starts of resnet-tiny: labels on CIFAR-100, S-DIET on CIFAR-100 (both trained by this command
and kept in --starts), and random weights. Three targets without labels: CIFAR-10, MNIST (gray, 28
pixels) and the built-in photographs. Frozen is the start as it is, adapted what the default of
`--init` makes of it, scratch the same objective from random weights for as many images, which
takes the same time; the adapted random start is the scratch. A linear probe is fitted on the n
images and scored on test images. The verdicts are those of the run: with labels, and what it would
be without them.

The settings were chosen before that, on images of the training files that no run trains on
(--part choices): one seed, 12 epochs of 2,000 images from the start with labels; the last of them
is a control, with a rate that ruins the features. Audits (--part audits) put what became of the
start with labels beside it, for 2,000 images of each target, with planted features; probes are
fitted on 4,000 images and scored on 1,000 test images.

DATA_FOLDER holds cifar100_train.npz, and train and test files of CIFAR-10 and MNIST. The file is
rewritten after every run, and runs that it already holds are not repeated; --seed, --images and
--target choose a part of the table.
"""

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from study import Results, Run, accuracies, validation_sets
from widefield.audits.audit import audit
from widefield.data import Dataset, open_dataset
from widefield.encoders import Encoder, load_encoder, untrained_like
from widefield.evaluation.comparison import Comparison, compare_with_baseline
from widefield.probes import extract
from widefield.train.run import Pretrained
from widefield.workflows.pretrain import pretrain

STARTS = {"labels": "supervised", "s-diet": "s-diet"}
"""Start -> the method that trained it on CIFAR-100."""
START_EPOCHS = 8
RANDOM = "random"
TARGETS = ("cifar10", "mnist", "photos")
COUNTS = (2000, 500, 5000)
"""Images of a target."""
PHOTOS = {"train": 4000, "test": 1000}
"""How many there are, which is fewer."""
SEEDS = (0, 1, 2)
SHOWN = 24_000
"""Images that every run is shown, counted with repetition: its time."""
CHOICES: dict[str, dict[str, Any]] = {
    "lr x 1": {"init_lr_scale": 1.0},
    "lr x 0.3": {"init_lr_scale": 0.3},
    "lr x 0.1": {"init_lr_scale": 0.1},
    "lr x 0.3, layer decay 0.5": {"init_lr_scale": 0.3, "layer_decay": 0.5},
    "lr x 0.3, first 2 blocks frozen": {"init_lr_scale": 0.3, "freeze_blocks": 2},
    "lr x 0.3, norms frozen": {"init_lr_scale": 0.3, "freeze_norm_layers": True},
    "lr x 100": {"init_lr_scale": 100.0},
}
"""Settings tried, by name."""
CHOICE_EPOCHS, CHOICE_IMAGES = 12, 2000
TEST = 5000
AUDITED = 4000
"""Images that an audit's probes are fitted on; a quarter as many score them."""
PARTS = ("choices", "audits", "table")
SETTINGS: dict[str, Any] = {
    "encoder": "resnet-tiny",
    "checkpoint_every": 10_000,
    "health_every": 10_000,
    "quiet": True,
}


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, folder: Path, starts: Path, results: Path) -> None:
        self.folder, self.starts = folder, starts
        self.results = Results(results, _summary)

    def run(self, start: str, target: str, n: int, seed: int) -> None:
        """Adapt once and score before and after, unless that is done."""
        n = min(n, PHOTOS["train"]) if target == "photos" else n
        key = f"{start} | {target} | {n} | seed {seed}"
        if key in self.results:
            return
        sets = self._sets(target, n, seed)
        given = (
            {} if start == RANDOM else {"init": str(trained_start(self.folder, self.starts, start))}
        )
        epochs = max(1, SHOWN // len(sets[0]))
        with tempfile.TemporaryDirectory() as folder:
            began, wall = time.process_time(), time.monotonic()
            done = pretrain(
                self._spec(target, "train"),
                out=Path(folder) / "run",
                method="view-contrast",  # without a start, many epochs would choose another
                max_examples=n,
                seed=seed,
                epochs=epochs,
                **SETTINGS,
                **given,
            )
            seconds, wall_seconds = time.process_time() - began, time.monotonic() - wall
            frozen, comparison = _before(done, sets[0], seed)
        run = {
            "part": "table",
            "start": start,
            "target": target,
            "images": len(sets[0]),
            "seed": seed,
            "epochs": epochs,
            "frozen": _accuracy(frozen, *sets),
            "adapted": _accuracy(done.encoder, *sets),
            "comparison": comparison.to_json(),
            "processor_seconds": round(seconds, 1),
            "wall_seconds": round(wall_seconds, 1),
        }
        self.results.add(key, run)

    def choose(self, target: str, name: str) -> None:
        """Adapt once with settings that are tried, scored on further training images."""
        key = f"choices | {target} | {name}"
        if key in self.results:
            return
        file = self.folder / f"{target}_train.npz"
        sets = validation_sets(file, "", CHOICE_IMAGES, 0)
        with tempfile.TemporaryDirectory() as folder:
            began = time.process_time()
            done = pretrain(
                file,
                out=Path(folder) / "run",
                max_examples=CHOICE_IMAGES,
                init=str(trained_start(self.folder, self.starts, "labels")),
                epochs=CHOICE_EPOCHS,
                **SETTINGS,
                **CHOICES[name],
            )
            seconds = time.process_time() - began
            frozen = load_encoder(Path(folder) / "run" / "init")
        assert done.comparison is not None
        run = {
            "part": "choices",
            "target": target,
            "name": name,
            "frozen": _accuracy(frozen, *sets),
            "adapted": _accuracy(done.encoder, *sets),
            "verdict": done.comparison.verdict,
            "without_labels": done.comparison.without_labels,
            "processor_seconds": round(seconds),
        }
        self.results.add(key, run)

    def audit(self, target: str) -> None:
        """Adapt once, and audit what came of it beside the start, on test images."""
        key = f"audits | {target}"
        if key in self.results:
            return
        n = CHOICE_IMAGES
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            pretrain(
                self._spec(target, "train"),
                out=out,
                max_examples=n,
                init=str(trained_start(self.folder, self.starts, "labels")),
                epochs=SHOWN // n,
                **SETTINGS,
            )
            began = time.process_time()
            found = audit(
                out,
                self._spec(target, "test"),
                train_data=self._spec(target, "train"),
                compare=out / "init",
                plant=("shapes", "digits"),
                max_examples=AUDITED,
                quiet=True,
            )
            seconds = time.process_time() - began
        (before,) = found.compared.values()
        run = {
            "part": "audits",
            "target": target,
            "images": n,
            "tasks": {
                name: {
                    "before": before[name].accuracy,
                    "after": after.accuracy,
                    "difference": after.difference_from(before[name]).verdict,
                    "verdicts": [before[name].verdict, after.verdict],
                }
                for name, after in found.tasks.items()
            },
            "processor_seconds": round(seconds),
        }
        self.results.add(key, run)

    def _sets(self, target: str, n: int, seed: int) -> tuple[Dataset, Dataset]:
        """Images to fit a probe on, and images to score it on."""
        test = min(TEST, PHOTOS["test"]) if target == "photos" else TEST
        return (
            open_dataset(self._spec(target, "train"), max_examples=n, seed=seed),
            open_dataset(self._spec(target, "test"), max_examples=test, seed=seed, held_out=True),
        )

    def _spec(self, target: str, split: str) -> str:
        return f"photos:{split}" if target == "photos" else f"{self.folder}/{target}_{split}.npz"


def trained_start(folder: Path, starts: Path, name: str) -> Path:
    """Return the run that trained a start, trained now if it is not in `starts`."""
    run = starts / STARTS[name]
    if not (run / "encoder.safetensors").exists():
        data = f"{folder}/cifar100_train.npz"
        pretrain(data, out=run, method=STARTS[name], epochs=START_EPOCHS, seed=0, **SETTINGS)
    return run


def _before(done: Pretrained, images: Dataset, seed: int) -> tuple[Encoder, Comparison]:
    """Return what the run started from, and the comparison; random weights are drawn again."""
    if done.comparison is not None and done.comparison.baseline == "initial":
        return load_encoder(done.run / "init"), done.comparison
    untrained = untrained_like(done.encoder, seed=seed)
    assert isinstance(untrained, Encoder)
    found = compare_with_baseline(
        done.encoder, images, initial=untrained, seed=seed, device=torch.device("cpu")
    )
    assert found is not None
    return untrained, found


def _accuracy(encoder: Encoder, train_set: Dataset, test_set: Dataset) -> float:
    scores = accuracies(lambda images: extract(encoder, images), train_set, test_set)
    return scores["class"]


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    return {
        "command": "python benchmarks/start_table.py DATA_FOLDER",
        "start_epochs": START_EPOCHS,
        "images_shown": SHOWN,
        "seeds": sorted({run["seed"] for run in runs.values() if run["part"] == "table"}),
    }


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--starts", type=Path, default=Path("starts"))
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--seed", type=int, choices=SEEDS, action="append")
    parser.add_argument("--images", type=int, choices=COUNTS, action="append")
    parser.add_argument("--target", choices=TARGETS, action="append")
    args = parser.parse_args()
    study = Study(args.folder, args.starts, args.json)
    seeds, counts = args.seed or SEEDS, args.images or COUNTS
    parts = args.part or PARTS
    tried = itertools.product(("cifar10", "mnist"), CHOICES)
    for target, name in tried if "choices" in parts else ():
        study.choose(target, name)
    for target in TARGETS if "audits" in parts else ():
        study.audit(target)
    cells = itertools.product(seeds, counts, args.target or TARGETS)
    for seed, n, target in cells if "table" in parts else ():
        for start in (*STARTS, RANDOM):
            study.run(start, target, n, seed)


if __name__ == "__main__":
    main()
