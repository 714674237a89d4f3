"""A trained encoder of a study, and the numbers that several studies take of one."""

import csv
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import widefield
from studies.packs import Packs
from studies.study import RATE, Arm, Measured, Scale, percent
from widefield.config.recipes import make_recipe
from widefield.core.files import write_atomically
from widefield.core.hardware import choose_device
from widefield.data import Dataset, open_dataset
from widefield.data.source import Data
from widefield.encoders import Projected, Wide, load_encoder
from widefield.methods import load_projector
from widefield.probes import extract
from widefield.probes.features import DictionaryFeatures, Pixels
from widefield.probes.outcome import Outcome
from widefield.probes.score import score
from widefield.probes.untrained import with_data_statistics
from widefield.probes.wide import fit_on_dataset
from widefield.train.build import DataInfo, build_run_encoder, fit_encoder
from widefield.train.run_dir import RunFolder
from widefield.train.step import StepMetrics

Sets = tuple[Dataset, Dataset]
"""Examples that probes are fitted on, and those that are scored."""

VIEWS = "expert"
"""Views of the runs that name neither views nor a recipe, the same for every method."""

WITHOUT_PROJECTOR = ("supervised", "diet")
"""Methods that take no settings of a projector."""


@dataclass(frozen=True, eq=False)
class Trained:
    """An encoder of one arm and one seed; its hash is its identity, for caches.

    Args:
        folder: of its run; None for an untrained encoder.
    """

    arm: Arm
    scale: Scale
    packs: Packs
    seed: int
    folder: Path | None

    @cached_property
    def encoder(self) -> nn.Module:
        """The frozen encoder, on the device."""
        if self.folder is not None:
            return load_encoder(self.folder).to(self.device).eval()
        if self.arm.pixels:
            return Pixels.of(self.train_set().images)
        if self.arm.dictionary:
            return DictionaryFeatures.of(self.train_set().images, seed=self.seed)
        recipe = make_recipe(encoder=self.scale.encoder, seed=self.seed)
        images = self.train_set()
        untrained = build_run_encoder(recipe, DataInfo.of(images), self.device).eval()
        if self.arm.statistics:
            fit_encoder(untrained, images, seed=self.seed)
            return with_data_statistics(untrained, images.images, device=self.device)
        return untrained

    @cached_property
    def projected(self) -> nn.Module | None:
        """The encoder with its projector, if its method has one."""
        projector = None if self.folder is None else load_projector(self.folder)
        if not projector:  # one of no layers has the length 0
            return None
        return Projected(self.encoder, projector.to(self.device)).eval()

    @cached_property
    def wide(self) -> Wide:
        """The encoder with a readout of its stages, which is fitted on the training images."""
        readout = fit_on_dataset(self.encoder, self.train_set(), device=self.device)
        return Wide(self.encoder, readout.to(self.device))

    @property
    def images(self) -> int | None:
        """How many images it was trained on at most; None for all."""
        return images_of(self.arm, self.scale)

    @property
    def device(self) -> torch.device:
        """Where the encoder is."""
        return choose_device("auto")

    def train_set(self, ending: str = "") -> Dataset:
        """Return the images that the encoder was trained on; `ending` follows their name."""
        data = data_of(self.arm, self.scale, self.packs, self.seed, ending)
        return open_dataset(data, max_examples=self.images, seed=self.seed, **self._form)

    def probe_set(self, ending: str = "") -> Dataset:
        """Return the images that probes are fitted on: the first of those trained on."""
        return self.train_set(ending).subset(slice(self.scale.probed))

    def test_set(self, ending: str = "") -> Dataset:
        """Return the images that scores are taken on; `ending` follows their name."""
        spec = self.packs.spec(self.arm.data, "test") + ending
        return open_dataset(spec, seed=self.seed, held_out=True, **self._form)

    def sets(self, images: int) -> Sets:
        """Return `images` of the training file, whatever it was trained on, and the test set."""
        spec = self.packs.spec(self.arm.data, "train", drawn=self.seed)
        most = images if self.scale.arms is None else self.images
        return open_dataset(spec, max_examples=most, seed=self.seed, **self._form), self.test_set()

    def test_sets(self, ending: str = "") -> Sets:
        """Return what probes are fitted on, and the test set."""
        return self.probe_set(ending), self.test_set(ending)

    def choice_sets(self, ending: str = "") -> Sets:
        """Return what probes are fitted on, and images that choices are made on."""
        return self.probe_set(ending), self.validation_set(ending)

    def validation_set(self, ending: str = "") -> Dataset:
        """Return further images of the training file; `ending` follows their name."""
        spec = data_of(self.arm, self.scale, self.packs, self.seed, ending)
        known = self.train_set().paths
        images = len(known) + self.scale.validation
        more = open_dataset(spec, max_examples=images, seed=self.seed, held_out=True, **self._form)
        trained_on = set(known)
        return more.subset(np.flatnonzero([path not in trained_on for path in more.paths]))

    @property
    def _form(self) -> dict[str, Any]:
        size = (self.arm.settings or {}).get("image_size", self.scale.settings.get("image_size"))
        return {} if size is None else {"image_size": size}

    @property
    def cost(self) -> Measured:
        """What its training took; nothing for an untrained encoder."""
        return {} if self.folder is None else json.loads(_cost_file(self.folder).read_text())


def features(encoder: nn.Module, images: Dataset) -> Tensor:
    """Return the features of a frozen encoder, float32 [n, D]."""
    return extract(encoder, images.inputs)


def scores(h: Sequence[Tensor], sets: Sets, *, pooled: int | None = None) -> dict[str, Outcome]:
    """Return the scores of every task's probes on the features of both sets.

    Args:
        h: features of both.
        pooled: the first columns of wide features that are the pooled ones.
    """
    (train_h, test_h), (train, test) = h, sets
    return score(train_h, train, test_h, test, pooled=pooled)


def accuracies(encoder: nn.Module, sets: Sets, *, pooled: int | None = None) -> dict[str, float]:
    """Return the linear-probe accuracy of every task on frozen features, in percent."""
    found = scores([features(encoder, images) for images in sets], sets, pooled=pooled)
    return {task: percent(s.value) for task, s in found.items()}


def by_task(accuracies: Mapping[str, float], readout: str = "") -> Measured:
    """Return accuracies under the names of their measures."""
    return {f"{task}{readout}, %": value for task, value in accuracies.items()}


def probes(trained: Trained, sets: Sets | None = None) -> Measured:
    """Return the accuracy of every task for the pooled and for the wide readout, in percent.

    Probes are scored on the test set, unless other `sets` are given.
    """
    sets = sets or trained.test_sets()
    pooled = by_task(accuracies(trained.encoder, sets))
    if trained.arm.pixels:
        return pooled
    wide = accuracies(trained.wide, sets, pooled=trained.wide.readout.config.pooled)
    return pooled | by_task(wide, ", wide")


def at_best_rate(
    arms: Mapping[str, Trained], name: str, validate: Callable[[Trained], Measured], measure: str
) -> Trained:
    """Return the encoder of an arm at the learning rate that is best on validation images."""
    tried = [arm for key, arm in arms.items() if key.partition(RATE)[0] == name]
    return max(tried, key=lambda arm: validate(arm)[measure])


def validated(trained: Trained) -> Measured:
    """Return the accuracy of every task on further images of the training file, in percent."""
    return by_task(accuracies(trained.encoder, trained.choice_sets()))


def with_neighbors(encoder: nn.Module, sets: Sets) -> Measured:
    """Return linear-probe and 20-nearest-neighbor accuracy of the class, in percent."""
    found = scores([features(encoder, images) for images in sets], sets)["class"]
    assert found.knn is not None
    return {"class, %": percent(found.value), "class by neighbors, %": percent(found.knn)}


def labeled(y: NDArray[np.int64], per_class: int, *, seed: int) -> NDArray[np.int64]:
    """Return the rows of the few examples of each class that have a label."""
    rng, classes = np.random.default_rng(seed), range(int(y.max()) + 1)
    chosen = [rng.choice(np.flatnonzero(y == k), per_class, replace=False) for k in classes]
    return np.concatenate(chosen)


def accuracy_of_others(
    guess: NDArray[np.int64], y: NDArray[np.int64], known: NDArray[np.int64]
) -> float:
    """Return the accuracy on the examples that have no label."""
    rest = np.setdiff1d(np.arange(len(y)), known)
    return float((guess[rest] == y[rest]).mean())


def train(arm: Arm, scale: Scale, packs: Packs, seed: int, work: Path) -> Trained:
    """Return the encoder of an arm; it is trained unless `work` has it, and resumed if it can be.

    Arms of different studies with the same data and settings share one run.
    """
    if arm.settings is None:
        return Trained(arm, scale, packs, seed, None)
    settings = run_settings(arm, scale, seed)
    if arm.start is not None:
        settings["init"] = str(train(arm.start, scale, packs, 0, work).folder)
    if arm.weights is not None:
        settings["init"] = arm.weights(packs)
    folder = work / _run_name(arm, settings)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock")):
        if not _cost_file(folder).exists():
            data = data_of(arm, scale, packs, seed)
            _train_or_resume(data, folder, settings, compared=arm.compared)
    return Trained(arm, scale, packs, seed, folder)


def data_of(arm: Arm, scale: Scale, packs: Packs, seed: int, ending: str = "") -> Data:
    """Return what an arm is trained on; `ending` follows the name of a pack.

    Where it is a part of the training file, every seed draws another.
    """
    if arm.source is not None:
        return arm.source(packs, scale, seed)
    drawn = None if images_of(arm, scale) is None else seed
    return packs.spec(arm.data, "train", drawn=drawn) + ending


def run_settings(arm: Arm, scale: Scale, seed: int) -> dict[str, Any]:
    """Return the arguments of `widefield.pretrain` for an arm."""
    assert arm.settings is not None
    method = arm.settings.get("method", "")
    of_scale = {"encoder": scale.encoder, **scale.settings, **scale.of_method.get(method, {})}
    given = {**of_scale, **arm.settings}
    if method in WITHOUT_PROJECTOR or given.get("projector_layers") == 0:
        given.pop("projector_width", None)
    epochs = max(1, round(arm.epochs * scale.epochs))
    given = {"epochs": epochs, "max_examples": images_of(arm, scale)} | given
    return {**given, "seed": seed}


def images_of(arm: Arm, scale: Scale) -> int | None:
    """Return how many images an arm trains on at most; None for all."""
    smallest = min(arm.images or 10**9, scale.images or 10**9)
    return None if smallest == 10**9 else smallest


def _run_name(arm: Arm, settings: Mapping[str, Any]) -> str:
    made_of = [arm.data, settings, *(["compared"] if arm.compared else [])]
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True, default=repr).encode()).hexdigest()
    method = settings.get("method", "default")
    return f"{arm.data.replace(':', '-')}-{getattr(method, 'name', method)}-{digest[:10]}"


def _cost_file(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.json"


class _LastEpoch(Exception):
    """The encoder is trained and saved."""


def _train_or_resume(data: Data, folder: Path, settings: dict[str, Any], *, compared: bool) -> None:
    resumed = (folder / "checkpoints" / "last.pt").exists()
    if not resumed:
        shutil.rmtree(folder, ignore_errors=True)  # a run that was killed before a checkpoint
    began = time.process_time(), time.monotonic()
    views = {} if "recipe" in settings else {"views": VIEWS}
    every = {"checkpoint_every": max(1, settings["epochs"] // 4)}
    given = {} if resumed else every | views | settings

    def end(metrics: StepMetrics) -> None:
        # The comparison takes as long as a short training, and most studies have their own.
        if metrics.epoch == settings["epochs"] and not compared:
            raise _LastEpoch

    try:
        done = widefield.pretrain(
            data, out=folder, resume=resumed, quiet=True, on_epoch=end, **given
        )
        if not done.finished:
            raise KeyboardInterrupt
    except _LastEpoch:
        last = RunFolder(path=folder).encoder_at(settings["epochs"])
        shutil.copytree(last, folder, dirs_exist_ok=True)
    cost = {
        "processor seconds": round(time.process_time() - began[0], 1),
        "wall seconds": round(time.monotonic() - began[1], 1),
        "effective rank": _effective_rank(folder),
        "resumed": resumed,
    }
    write_atomically(_cost_file(folder), lambda draft: draft.write_text(json.dumps(cost)))


def _effective_rank(folder: Path) -> float:
    """Return the effective rank of the features after the last epoch."""
    with (folder / "metrics.csv").open(newline="") as file:
        *_, last = csv.DictReader(file)
    return round(float(last["effective_rank"]), 1)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that one process at a time can have."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
