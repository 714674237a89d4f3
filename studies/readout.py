"""The wide readout against its floors, and with few labels."""

import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import adjusted_mutual_info_score
from torch import Tensor, nn

from studies.packs import Packs
from studies.study import TINY, Arm, Finding, Measured, Scale, SeedRuns, cpu_study, percent
from studies.trained import Sets, Trained, accuracies, accuracy_of_others, features, labeled, scores
from widefield.config.recipes import make_recipe
from widefield.data import Dataset, open_dataset
from widefield.encoders import Encoder, Wide
from widefield.metrics import density_clusters, neighbor_graph, suspected_labels, tsne_map
from widefield.metrics.tsne import MAP_NEIGHBORS
from widefield.probes.features import Pixels
from widefield.probes.few_labels import fit_few_labels
from widefield.probes.wide import fit_on_dataset
from widefield.train.build import DataInfo, build_run_encoder

HUES, SQUARE = 6, 8
CIFAR = ("cifar10", "cifar10+digits", "cifar10+shapes", "cifar10+square")
DATA = (*CIFAR, "mnist", "photos", "spoken")
LARGE_DATA = ("cifar10", "cifar10+digits", "cifar10+square", "mnist")
SCORED = 2_000
"""Examples that probes are scored on, at most."""
PHOTOS, SCORED_PHOTOS = 4_000, 1_000
"""Photographs that probes are fitted and scored on; there are no more."""
SPOKEN = 2_000
"""Recordings that probes are fitted on, of 3,000."""
CPU = torch.device("cpu")

Pair = tuple[Tensor, Tensor]
"""Features [n, K] of the training examples, and of those that are scored."""


def open_sets(packs: Packs, name: str, n: int, seed: int, *, choice: bool = False) -> Sets:
    """Open one of `DATA`; the seed is that of planted features, and of the split of sounds.

    For a `choice`, the scored images are further ones of the training file.
    """
    if name == "spoken":
        return _spoken(packs, min(n, SPOKEN), seed)
    if name == "photos":
        train = open_dataset("photos:train", max_examples=min(n, PHOTOS))
        return train, open_dataset("photos:test", max_examples=min(n, SCORED_PHOTOS))
    base, _, plant = name.partition("+")
    known = f"{base}+{plant}" if plant in ("digits", "shapes") else base
    form: dict[str, Any] = {"image_size": 32, "seed": seed}
    train_spec, test_spec = (packs.spec(known, split) for split in ("train", "test"))
    train = open_dataset(train_spec, max_examples=n, **form)
    test = open_dataset(test_spec, max_examples=min(n, SCORED), held_out=True, **form)
    if choice:
        more = open_dataset(train_spec, max_examples=2 * n, held_out=True, **form)
        fitted_on = set(train.paths)
        test = more.subset(np.flatnonzero([path not in fitted_on for path in more.paths]))
    if name == "cifar10":
        return with_hue(train), with_hue(test)
    if plant == "square":
        return with_square(train, seed), with_square(test, seed + 3)
    return train, test


def with_hue(dataset: Dataset) -> Dataset:
    """Return images with a further task, the hue of each."""
    return open_dataset(dataset.arrays() | {"hue": hues(dataset.images)})


def hues(images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the bin of the hue circle that most of the saturation of each image is in, [n].

    Red is the middle of bin 0.
    """
    n, height, width, _ = images.shape
    column = Image.fromarray(images.reshape(n * height, width, 3)).convert("HSV")
    hue, saturation, _ = np.moveaxis(np.asarray(column).reshape(n, -1, 3).astype(float), 2, 0)
    bins = np.floor(hue / 256 * HUES + 0.5).astype(int) % HUES
    weight = np.stack([(saturation * (bins == k)).sum(1) for k in range(HUES)], axis=1)
    result: NDArray[np.int64] = weight.argmax(1)
    return result


def with_square(dataset: Dataset, seed: int) -> Dataset:
    """Return images with a square of one color at a random place; the task is its quadrant."""
    rng, images = np.random.default_rng(seed), dataset.images.copy()
    half = images.shape[1] // 2
    quadrant = rng.integers(4, size=len(images))
    for image, place in zip(images, quadrant, strict=True):
        y, x = np.array([place // 2, place % 2]) * half + rng.integers(half - SQUARE + 1, size=2)
        image[y : y + SQUARE, x : x + SQUARE] = rng.integers(256, size=3)
    return open_dataset({"x": images, "class": dataset.labels["class"], "place": quadrant})


def _spoken(packs: Packs, n: int, seed: int) -> Sets:
    """Return two parts of all recordings: the test split of the file has only 300."""
    both = [open_dataset(f"{packs.file('fsdd')}:{split}") for split in ("train", "test")]
    sounds = np.concatenate([d.images[:, 0, :, 0] for d in both])
    labels = {t: np.concatenate([d.labels[t] for d in both]) for t in both[0].labels}
    order = np.random.default_rng(seed).permutation(len(sounds))
    train, test = (
        open_dataset(
            {"sounds": sounds[rows], "sample_rate": np.array(both[0].rate)}
            | {task: y[rows] for task, y in labels.items()}
        )
        for rows in (order[:n], order[n:])
    )
    return train, test


def with_channels(dataset: Dataset, channels: int) -> Dataset:
    """Return gray images with as many channels as an encoder takes; sounds as they are."""
    if dataset.images.dtype != np.uint8 or dataset.images.shape[3] == channels:
        return dataset
    return open_dataset({"x": dataset.images.repeat(channels, axis=3), **dataset.labels})


def probed_with(trained: Trained) -> tuple[nn.Module, Sets]:
    """Return the encoder of an arm, and the examples with as many channels as it takes."""
    about = trained.arm.about
    n, choice = trained.scale.probed or 0, about.get("choice", False)
    train, test = open_sets(trained.packs, about["probed"], n, trained.seed, choice=choice)
    if trained.arm.pixels:
        return Pixels.of(train.images), (train, test)
    if trained.arm.settings is not None:
        assert isinstance(trained.encoder, Encoder)
        channels = trained.encoder.config.channels
        return trained.encoder, (with_channels(train, channels), with_channels(test, channels))
    recipe = make_recipe(encoder=about["encoder"], seed=trained.seed)
    return build_run_encoder(recipe, DataInfo.of(train), CPU).eval(), (train, test)


def probed(h: Pair, sets: Sets, *, pooled: int | None = None) -> dict[str, float]:
    """Return the linear-probe accuracy of each task in percent."""
    return {task: percent(s.value) for task, s in scores(h, sets, pooled=pooled).items()}


def features_of(encoder: nn.Module, sets: Sets) -> dict[str, Pair]:
    """Return pooled, wide and control features of both parts.

    The control has as many columns as the wide features: the pooled ones, and random ReLU features
    of them.
    """
    wide = Wide(encoder, fit_on_dataset(encoder, sets[0], device=CPU))
    outputs = features(wide, sets[0]), features(wide, sets[1])
    d = wide.readout.config.pooled
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(d, wide.dim - d, generator=generator) / d**0.5
    bias = torch.randn(wide.dim - d, generator=generator)
    pooled = outputs[0][:, :d], outputs[1][:, :d]  # standardized
    first, second = (torch.cat([h, (h @ weight + bias).relu()], dim=1) for h in pooled)
    return {"pooled": pooled, "wide": outputs, "control": (first, second)}


def floors(trained: Trained) -> Measured:
    """Return the accuracies of pooled, wide and control features, or those of the pixels."""
    encoder, sets = probed_with(trained)
    if trained.arm.pixels:
        found = {"pixels": accuracies(encoder, sets), "majority class": most_frequent(*sets)}
    else:
        h = features_of(encoder, sets)
        d = h["pooled"][0].shape[1]
        found = {
            kind: probed(pair, sets, pooled=None if kind == "pooled" else d)
            for kind, pair in h.items()
        }
    return {f"{task}, {kind}, %": v for kind, scores in found.items() for task, v in scores.items()}


def most_frequent(train: Dataset, test: Dataset) -> dict[str, float]:
    """Return the accuracy of each task's most frequent class, in percent."""
    return {
        task: percent((test.labels[task] == np.bincount(y).argmax()).mean())
        for task, y in train.labels.items()
    }


LABELS: dict[str, dict[str, Any]] = {
    "resnet-tiny": {"epochs": 8, "max_examples": 20_000},
    "resnet18": {"epochs": 2, "max_examples": 10_000},
    "vit_tiny_patch16_224": {"epochs": 2, "max_examples": 10_000, "lr": 1e-3},
}
"""Encoder -> settings of its training on labels of CIFAR-100."""


def _source(name: str) -> Callable[[Packs, Scale, int], Any]:
    """Return what gives the examples of an arm to its training."""
    return lambda packs, scale, seed: open_sets(packs, name, scale.probed or 0, seed)[0].arrays()


def _arms() -> Iterator[tuple[str, Arm]]:
    """Yield the arms, named by data, encoder and what trained it."""
    for name in DATA:
        about = {"probed": name, "encoder": "resnet-tiny"}
        yield f"{name}, raw pixels", Arm(data=name, settings=None, pixels=True, about=about)
        arm = Arm(data=name, source=_source(name), about=about)
        yield f"{name}, resnet-tiny, view-contrast", arm
        for encoder, labels in LABELS.items():
            about = {"probed": name, "encoder": encoder}
            if encoder == "resnet-tiny" or name in LARGE_DATA:
                yield f"{name}, {encoder}, untrained", Arm(data=name, settings=None, about=about)
            if name in (
                LARGE_DATA
                if encoder != "resnet-tiny"
                else (*LARGE_DATA, "cifar10+shapes", "photos")
            ):
                settings = {"method": "supervised", "encoder": encoder, **labels}
                yield (
                    f"{name}, {encoder}, labels",
                    Arm(data="cifar100", settings=settings, about=about),
                )


FLOOR, CLASS = -2.0, -1.0
"""Points that wide features may have less than the floor, and their class than pooled features."""


def _gaps(runs: SeedRuns, kind: str) -> Iterator[float]:
    """Yield the accuracy of a kind of features minus the best floor, for each trained encoder."""
    for arm, measured in runs.items():
        name, _, start = arm.rpartition(", ")
        if start not in ("view-contrast", "labels"):
            continue
        plain, pixel = runs[f"{name}, untrained"], runs[f"{name.partition(', ')[0]}, raw pixels"]
        for task in (m.removesuffix(", wide, %") for m in measured if m.endswith(", wide, %")):
            floors = [pixel[f"{task}, {floor}, %"] for floor in ("pixels", "majority class")]
            floors += [plain[f"{task}, {readout}, %"] for readout in ("pooled", "wide")]
            yield measured[f"{task}, {kind}, %"] - max(floors)


def _class_gaps(runs: SeedRuns) -> Iterator[float]:
    for measured in runs.values():
        if "class, wide, %" in measured:
            yield measured["class, wide, %"] - measured["class, pooled, %"]


READOUT_FLOORS = cpu_study(
    id="readout-floors",
    question="Is a feature ever below its floor in the wide readout?",
    tiny=replace(TINY, arms=3, probed=48),
    cpu=Scale(images=None, epochs=12, minutes=60, probed=5000),
    arms=dict(_arms()),
    measure=floors,
    findings=(
        Finding(
            id="readout-floors wide",
            criterion="wide features are nowhere more than 2 points below the best floor",
            value=lambda runs: min(_gaps(runs, "wide")) - FLOOR,
        ),
        Finding(
            id="readout-floors class",
            criterion="their class is nowhere more than a point below that of pooled features",
            value=lambda runs: min(_class_gaps(runs)) - CLASS,
        ),
        Finding(
            id="readout-floors control",
            criterion="random features of the pooled ones are somewhere below the floor",
            value=lambda runs: FLOOR - min(_gaps(runs, "control")),
        ),
    ),
    conclusion=(
        "The floor is the best of raw pixels, the majority class, and pooled and wide features of "
        "the untrained network. Tasks beside the class are the dominant hue, a planted digit or "
        "shape, the quadrant of a square, and the speaker. Encoders of labels are trained on "
        "CIFAR-100. The probe selects the scale of the columns beside the pooled ones with the L2 "
        "strength. No feature of any encoder is further below its floor than the criterion allows, "
        "and random features of the pooled ones are far below. The class of photographs is a "
        "little lower than by pooled features in single runs, and not significantly over the "
        "seeds. Wide features of the untrained network predict the hue and what is planted nearly "
        "as well as those of the trained one: training adds to the class, by view-contrast with "
        "expert views less than five points for CIFAR-10, plain or with digits or shapes, and "
        "least in the larger networks, which are trained for two epochs."
    ),
)

DRAWS, PER_CLASS = 5, 5


def few_labels(trained: Trained) -> Measured:
    """Return what few labels, neighbors and clusters make of pixels, pooled and wide features.

    - few labels: five examples a class have a label, and the probe of `classify` predicts all
      others; mean of five draws;
    - neighbors: share of examples whose label is the most frequent of their 20 nearest neighbors;
    - clusters: adjusted mutual information of labels and the clusters of `explore`.
    """
    encoder, (images, _) = probed_with(trained)
    wide = Wide(encoder, fit_on_dataset(encoder, images, device=CPU))
    seen_by = {"pixels": Pixels.of(images.inputs), "pooled": encoder, "wide": wide}
    return {
        f"{task}, {measure}, {kind}, %": percent(value)
        for kind, module in seen_by.items()
        for task, measure, value in _without_many_labels(features(module, images), images)
    }


def _without_many_labels(h: Tensor, dataset: Dataset) -> Iterator[tuple[str, str, float]]:
    graph, values = neighbor_graph(h, min(MAP_NEIGHBORS, len(h) - 1)), h.numpy()
    clusters = density_clusters(tsne_map(h, graph=graph, seed=0).numpy())
    for task, y in dataset.labels.items():
        yield task, "few labels", statistics.mean(_few(values, y, d) for d in range(DRAWS))
        yield task, "neighbors", suspected_labels(graph, y).agreement
        yield task, "clusters", float(adjusted_mutual_info_score(y, clusters))


def _few(h: NDArray[np.floating], y: NDArray[np.int64], draw: int) -> float:
    """Return the accuracy on the examples that have no label."""
    known = labeled(y, PER_CLASS, seed=draw)
    guess = fit_few_labels(h, known, y[known], classes=int(y.max()) + 1)
    return accuracy_of_others(guess.predicted.argmax(1), y, known)


FEW = {
    name: arm
    for name, arm in READOUT_FLOORS.arms.items()
    if arm.about["probed"] in ("cifar10", "cifar10+digits", "mnist", "spoken")
    and arm.about["encoder"] == "resnet-tiny"
    and not arm.pixels
}

READOUT_FEW = cpu_study(
    id="readout-few",
    question="With few labels or none, are wide features better than pooled ones?",
    tiny="its measures take a minute",
    cpu=Scale(images=None, epochs=12, minutes=30, probed=2000),
    arms=FEW,
    measure=few_labels,
    conclusion=(
        "With few labels, wide features are better for every task but the hue, and the class by "
        "the encoder of labels; neighbors agree more in them in every row. Of a planted digit, "
        "wide features of the trained encoder have less than those of the untrained one, and both "
        "less than raw pixels: few labels and neighbors do not recover what a probe with all "
        "labels does. Clusters agree more on MNIST and on the spoken digit, not on CIFAR-10 and on "
        "speakers: `explore` uses pooled features by default."
    ),
)

STUDIES = [READOUT_FLOORS, READOUT_FEW]
