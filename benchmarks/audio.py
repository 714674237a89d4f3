"""What do views of sounds leave to learn: speech, its background, or both?

    python benchmarks/audio.py fsdd.npz noise.npz --json benchmarks/results/audio.json

Feature Dropout's table 2 at a small size: spoken digits at 8 kHz (the train split of the file;
its test split scores), three background sounds, and both mixed at 0 to 10 dB. S-DIET, resnet-tiny
on 64 x 64 log-mel spectrograms, batches of 128, two seeds. All views get about the same processor
time, which is that of one epoch of the viewmaker.

Floors are the pixels of the spectrogram and an untrained encoder; the ceiling is told all labels at
once. The file is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from study import Results, accuracies, train
from widefield.config.recipes import make_recipe
from widefield.core.logmel import FrontEnd
from widefield.data import Dataset, open_dataset
from widefield.data.planted import Background, Canvas
from widefield.data.readers.recordings import to_int16
from widefield.probes import extract, pixels
from widefield.train.build import DataInfo, build_run_encoder
from widefield.views import ViewSettings

DATA = ("speech", "background", "both")
EPOCHS = {"specaug": 76, "waveaug": 49, "viewmaker": 1}
CEILING_EPOCHS = 16
SEEDS = (0, 1)
SETTINGS = {"method": "s-diet", "batch_size": 128}
RATE = 8000
BACKGROUNDS = {"train": 2400, "test": 600}
"""Segments of the background alone."""
LEVEL = 0.1
"""Their root mean square."""


class Study:
    """Runs what is not in the results file yet, and keeps the file up to date."""

    def __init__(self, speech: Path, noise: Path, results: Path) -> None:
        self.speech, self.noise = speech, noise
        self.results = Results(results, lambda runs: {"command": COMMAND})

    def source(self, data: str, split: str, seed: int) -> Any:
        """Return what `open_dataset` takes for a part of the data."""
        if data == "background":
            return self._backgrounds(split, seed)
        planted = f"+background:{self.noise}" if data == "both" else ""
        return f"{self.speech}:{split}{planted}"

    def _backgrounds(self, split: str, seed: int) -> dict[str, np.ndarray]:
        canvas = Canvas(shape=(1, RATE, 1), seed=seed, held_out=split == "test", rate=RATE)
        overlay = Background(source=str(self.noise)).draw(canvas)
        index = np.arange(BACKGROUNDS[split])
        sounds = to_int16(LEVEL * overlay.segments(index, RATE))
        labels = np.array(overlay.classes)[overlay.labels(index)]
        return {"sounds": sounds, "sample_rate": np.array(RATE), "background": labels}

    def sets(self, data: str, seed: int) -> tuple[Dataset, Dataset]:
        """Sounds to fit a probe on, and sounds to score it on."""
        one, two = (
            open_dataset(self.source(data, split, seed), seed=seed, held_out=split == "test")
            for split in ("train", "test")
        )
        return one, two

    def run(self, data: str, views: str, seed: int) -> None:
        """Train once and score once, unless that is done; `ceiling` is told the labels."""
        key = f"{data} | {views} | seed {seed}"
        if key in self.results:
            return
        settings: dict[str, Any] = {**SETTINGS, "views": views, "epochs": EPOCHS.get(views)}
        if views == "ceiling":
            settings |= {"method": "supervised", "views": "specaug", "epochs": CEILING_EPOCHS}
        trained = train(self.source(data, "train", seed), seed=seed, **settings)
        score = partial(extract, trained.encoder)
        run = {
            "data": data,
            "views": views,
            "seed": seed,
            "settings": settings,
            "accuracy": accuracies(score, *self.sets(data, seed)),
            "processor_seconds": trained.processor_seconds,
            "wall_seconds": trained.wall_seconds,
            "effective_rank": trained.effective_rank,
        }
        self.results.add(key, run)

    def floors(self, data: str, seed: int) -> None:
        """Score the spectrogram's pixels and an untrained encoder."""
        recipe, device = make_recipe(encoder="resnet-tiny", seed=seed), torch.device("cpu")
        for name in ("pixels", "untrained"):
            key = f"{data} | {name} | seed {seed}"
            if key in self.results:
                continue
            sets = self.sets(data, seed)
            untrained = build_run_encoder(recipe, DataInfo.of(sets[0]), device)
            features = pixels if name == "pixels" else partial(extract, untrained)
            floor = {"data": data, "views": name, "seed": seed}
            self.results.add(key, {**floor, "accuracy": accuracies(features, *sets)})

    def speeds(self) -> None:
        """Time each policy: seconds of sound, the spectrogram included, a processor second."""
        x = 0.1 * torch.randn(32, 1, 1, RATE, generator=torch.Generator().manual_seed(0))
        front_end = FrontEnd(rate=RATE, samples=RATE)
        for names in ("none", *EPOCHS):
            key = f"speed | {names}"
            if key in self.results:
                continue
            policy = ViewSettings.named(names)
            views = policy.build(channels=1, kind="sounds", front_end=front_end)
            generator, times = torch.Generator().manual_seed(0), []
            with torch.no_grad():
                for _ in range(4):
                    began = time.process_time()
                    views(x, 1, generator)
                    times.append(time.process_time() - began)
            speed = round(len(x) / statistics.median(times[1:]), 1)  # the first one warms up
            self.results.add(key, {"data": "speed", "views": names, "times_real_time": speed})


COMMAND = "python benchmarks/audio.py fsdd.npz noise.npz"


def main() -> None:
    """Run what the results file lacks, what takes long last."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("speech", type=Path)
    parser.add_argument("noise", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--views", choices=(*EPOCHS, "ceiling", "floors"), action="append")
    args = parser.parse_args()
    study = Study(args.speech, args.noise, args.json)
    study.speeds()
    order = ("specaug", "waveaug", "floors", "ceiling", "viewmaker")
    chosen = [views for views in order if views in (args.views or order)]
    for views, seed, data in itertools.product(chosen, SEEDS, DATA):
        if views == "floors":
            study.floors(data, seed)
        else:
            study.run(data, views, seed)


if __name__ == "__main__":
    main()
