"""Five labels a class: which encoder makes the most of them, frozen, adapted or fine-tuned?

    python benchmarks/start_labels.py DATA_FOLDER --starts STARTS \
        --json benchmarks/results/start_labels.json

The start is resnet-tiny with labels of CIFAR-100, as `start_table.py` trains it and keeps it in
STARTS. Targets are 2,000 images of CIFAR-10 and of MNIST, on which `pretrain --init` adapts it
without labels, with its default settings. Then five images a class get their label, and a probe as
in `classify` predicts all others: from their pixels, from the start's features, and from the
adapted ones. Beside it the start is fine-tuned on the labeled images (`--method supervised
--init`) and predicts the others by its own classifier.

Fine-tuning has the best of the settings tried, chosen by another draw of the labels than those of
the table, among the same images. Means over five draws of the labels for each of three seeds, of
labels and training; the images and the start are the same for all. The file is rewritten after
every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from start_table import SETTINGS, SHOWN, STARTS, trained_start
from study import Results, Run
from widefield.data import Dataset, open_dataset
from widefield.encoders import load_encoder
from widefield.probes import extract, pixels
from widefield.probes.few_labels import fit_few_labels
from widefield.train import checkpoint
from widefield.workflows.pretrain import pretrain

TARGETS = ("cifar10", "mnist")
IMAGES, CLASSES, LABELS, DRAWS = 2000, 10, 5, 5
SEEDS, CHOICE_SEED = (0, 1, 2), 100
TUNING: dict[str, dict[str, Any]] = {
    f"{epochs} epochs, lr x {scale:g}": {"epochs": epochs, "init_lr_scale": scale}
    for epochs, scale in itertools.product((20, 100), (0.03, 0.3, 1.0))
}
"""Settings of fine-tuning that are tried, by name."""
TUNED_BATCH = 25


class Labels:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, folder: Path, starts: Path, results: Path) -> None:
        self.folder = folder
        self.start = trained_start(folder, starts, "labels")
        self.results = Results(results, _summary)

    def choose(self, target: str, name: str) -> None:
        """Fine-tune once with settings that are tried."""
        key = f"choices | {target} | {name}"
        if key not in self.results:
            images = self._images(target, CHOICE_SEED)
            known = labeled(images.labels["class"], CHOICE_SEED)
            accuracy = self._fine_tuned(images, known, CHOICE_SEED, TUNING[name])
            run = {"part": "choices", "target": target, "name": name, "accuracy": accuracy}
            self.results.add(key, run)

    def compare(self, target: str, seed: int) -> None:
        """Adapt once, and predict from several draws of the labels."""
        key = f"table | {target} | seed {seed}"
        if key in self.results:
            return
        images, tuning = self._images(target, seed), chosen(self.results.runs, target)
        with tempfile.TemporaryDirectory() as folder:
            done = pretrain(
                f"{self.folder}/{target}_train.npz",
                out=Path(folder) / "run",
                max_examples=IMAGES,
                seed=seed,
                init=str(self.start),
                epochs=SHOWN // IMAGES,
                **SETTINGS,
            )
            frozen = load_encoder(Path(folder) / "run" / "init")
        features = {
            "pixels": pixels(images.images),
            "frozen": extract(frozen, images.images),
            "adapted": extract(done.encoder, images.images),
        }
        y = images.labels["class"]
        scores: dict[str, list[float]] = {name: [] for name in (*features, "fine-tuned")}
        for draw in range(DRAWS):
            known = labeled(y, DRAWS * seed + draw)
            for name, h in features.items():
                scores[name].append(_probed(h.numpy(), y, known))
            scores["fine-tuned"].append(self._fine_tuned(images, known, seed, TUNING[tuning]))
        accuracy = {name: round(statistics.mean(values), 4) for name, values in scores.items()}
        run = {"part": "table", "target": target, "seed": seed, "accuracy": accuracy}
        self.results.add(key, run)

    def _images(self, target: str, seed: int) -> Dataset:
        return open_dataset(f"{self.folder}/{target}_train.npz", max_examples=IMAGES, seed=seed)

    def _fine_tuned(
        self, images: Dataset, known: NDArray[np.int64], seed: int, tuning: dict[str, Any]
    ) -> float:
        """Return the accuracy of the fine-tuned network's own classifier on all other images."""
        y = images.labels["class"]
        with tempfile.TemporaryDirectory() as folder:
            done = pretrain(
                {"x": images.images[known], "class": y[known]},
                out=Path(folder) / "run",
                method="supervised",
                init=str(self.start),
                seed=seed,
                batch_size=TUNED_BATCH,
                **SETTINGS,
                **tuning,
            )
            state = checkpoint.load(done.run / "checkpoints" / "last.pt", torch.device("cpu"))
        weights, name = state["model"], "method.classifiers.class"
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        logits = extract(done.encoder, images.images) @ weight.T + bias
        return _accuracy(logits.argmax(1).numpy(), y, known)


def labeled(y: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return five rows of each class."""
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [rng.choice(np.flatnonzero(y == k), LABELS, replace=False) for k in range(CLASSES)]
    )


def chosen(runs: dict[str, Run], target: str) -> str:
    """Return the settings of fine-tuning that were best on a target."""
    tried = {
        r["name"]: r["accuracy"]
        for r in runs.values()
        if r["part"] == "choices" and r["target"] == target
    }
    return max(tried, key=lambda name: tried[name])


def _probed(h: NDArray[np.floating], y: NDArray[np.int64], known: NDArray[np.int64]) -> float:
    found = fit_few_labels(h, known, y[known], classes=CLASSES).probabilities
    return _accuracy(found.argmax(1), y, known)


def _accuracy(guess: NDArray[np.int64], y: NDArray[np.int64], known: NDArray[np.int64]) -> float:
    rest = np.setdiff1d(np.arange(len(y)), known)
    return round(float((guess[rest] == y[rest]).mean()), 4)


def _summary(runs: dict[str, Run]) -> dict[str, Any]:
    done = {run["target"] for run in runs.values() if run["part"] == "choices"}
    return {
        "command": "python benchmarks/start_labels.py DATA_FOLDER",
        "start": f"{STARTS['labels']} on CIFAR-100",
        "images": IMAGES,
        "labels_a_class": LABELS,
        "draws": DRAWS,
        "chosen": {target: chosen(runs, target) for target in sorted(done)},
    }


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--starts", type=Path, default=Path("starts"))
    args = parser.parse_args()
    study = Labels(args.folder, args.starts, args.json)
    for target, name in itertools.product(TARGETS, TUNING):
        study.choose(target, name)
    for seed, target in itertools.product(SEEDS, TARGETS):
        study.compare(target, seed)


if __name__ == "__main__":
    main()
