"""Wen and Li: toward understanding the feature learning process of contrastive learning (2021).

What the figures show is measured, too. An image x that maximizes a neuron a, with the mean m of a
over test images, is compared with its gray version and with a uniform image of its mean color:

    remaining activation = (a(x') - m) / (a(x) - m), clipped to [0, 1]
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from studies.study import TINY, Arm, Finding, Measured, Scale, SeedRuns, Study, above, difference
from studies.trained import Trained, scores
from widefield.data import Dataset
from widefield.metrics import activation_maximization, color_axes, firing_rates, tsne_map
from widefield.probes import extract
from widefield.probes.features import image_batch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NEURONS, SHOWN = 32, 10
"""Features that vary most over test images: measured ones, and those in a figure."""
TESTED, MAPPED, BASELINE, FIRED = 2000, 1000, 256, 200
"""Test images of the probes, of a t-SNE map, of the mean of a neuron, and of firing rates."""
CHANCE_10 = 15.0  # percent

CPU = Scale(images=2000, epochs=16, minutes=20, settings={"batch_size": 128})
GPU = Scale(images=None, epochs=100, encoder="wide-resnet-34-5", minutes=600)
SCALES = {"tiny": TINY, "cpu": CPU, "gpu": GPU}


def contrastive(views: str, **settings: object) -> Arm:
    """Return SimCLR on one policy of views."""
    return Arm(data="cifar10", settings={"method": "simclr", "views": views, **settings})


def supervised(views: str) -> Arm:
    """Return supervised training on one policy of views."""
    return Arm(data="cifar10", settings={"method": "supervised", "views": views})


NO_VIEWS, CROP, COLOR = contrastive("none"), contrastive("crop"), contrastive("crop+color")
UNTRAINED = Arm(data="cifar10", settings=None)


def first_test_images(trained: Trained, most: int = TESTED) -> Dataset:
    """Return the first test images, which are a random subset."""
    images = trained.test_set()
    return images.subset(np.arange(min(most, len(images))))


def chroma(x: Tensor) -> Tensor:
    """Return the mean of red - green and of (red + green) / 2 - blue of images, [n, 2]."""
    r, g, b = x.mean((2, 3)).T
    return torch.stack([r - g, (r + g) / 2 - b], dim=1)


def color_r2(train_h: Tensor, train_x: Tensor, test_h: Tensor, test_x: Tensor) -> float:
    """Return R^2 of a linear readout of the mean color of test images x from features h."""
    center, scale = train_h.mean(0), train_h.std(0).clamp_min(1e-6)
    fit, test = (((h - center) / scale).cpu().numpy() for h in (train_h, test_h))
    ridge = RidgeCV(np.logspace(0, 5, 11)).fit(fit, chroma(train_x).cpu().numpy())
    true = chroma(test_x).cpu().numpy()
    return float(r2_score(true, ridge.predict(test), multioutput="variance_weighted"))


def color_and_class(trained: Trained) -> Measured:
    """Accuracy of the class and R^2 of the mean color for the pooled and the wide readout."""
    sets = trained.train_set(), first_test_images(trained)
    wide = [extract(trained.wide, images.inputs) for images in sets]
    pooled = trained.wide.readout.config.pooled
    x, test_x = (image_batch(images.images, trained.device) for images in sets)
    measured: Measured = {}
    for name, width in (("", pooled), (", wide", wide[0].shape[1])):
        features = [h[:, :width] for h in wide]
        read = scores(features, *sets, pooled=pooled if name else None)
        measured[f"class{name}, %"] = read["class"]
        measured[f"R^2 of color{name}"] = round(color_r2(features[0], x, features[1], test_x), 4)
    return measured


def preferred(trained: Trained, neurons: int) -> tuple[Tensor, list[int], Tensor]:
    """Return images that maximize the features that vary most, these, and h of test images."""
    x = image_batch(first_test_images(trained, BASELINE).images, trained.device)
    with torch.inference_mode():
        h = trained.encoder(x)
    units = h.std(0).topk(min(neurons, h.shape[1])).indices.tolist()
    _, channels, height, width = x.shape
    images = activation_maximization(
        trained.encoder, units, shape=(channels, height, width), color=color_axes(x)
    )
    return images, units, h


def remaining(activation: Tensor, whole: Tensor, mean: Tensor) -> float:
    """Return the share of activations above their mean that remains, in percent."""
    return round(100 * float(((activation - mean) / (whole - mean)).clamp(0, 1).mean()), 2)


def neurons(trained: Trained) -> Measured:
    """What the images that maximize neurons are made of: color and shape."""
    x, units, h = preferred(trained, NEURONS)
    gray = x.mean(1, keepdim=True).expand_as(x)
    uniform = x.mean((2, 3), keepdim=True).expand_as(x)
    rows = torch.arange(len(units))
    with torch.inference_mode():
        whole, shape, color = (trained.encoder(v)[rows, units] for v in (x, gray, uniform))
    mean, std = h[:, units].mean(0), h[:, units].std(0)
    share = (x - gray).square().sum((1, 2, 3)) / (x - 0.5).square().sum((1, 2, 3))
    return {
        "chroma, % of the variance": round(100 * float(share.mean()), 3),
        "remaining in gray, %": remaining(shape, whole, mean),
        "remaining of the mean color, %": remaining(color, whole, mean),
        "activation, std": round(float(((whole - mean) / std).median()), 2),
    }


def more(measure: str, a: str, b: str) -> Callable[[SeedRuns], float]:
    """Return by how many percent `measure` of arm `a` exceeds that of arm `b`."""
    return lambda runs: 100 * (runs[a][measure] / runs[b][measure] - 1)


def draw_neurons(trained: Mapping[str, Trained]) -> "Figure":
    """Draw a row of images that maximize neurons for each arm."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 1.2 * len(trained)), layout="constrained")
    grid = figure.subplots(len(trained), SHOWN, squeeze=False)
    for (name, arm), axes in zip(trained.items(), grid, strict=True):
        images, _, _ = preferred(arm, SHOWN)
        for axis, image in zip(axes, images, strict=True):
            axis.imshow(image.permute(1, 2, 0).cpu().numpy())
            axis.set(xticks=[], yticks=[], frame_on=False)
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


COLORFUL = "chroma, % of the variance"
GRAY, UNIFORM = "remaining in gray, %", "remaining of the mean color, %"
CLEAR = 2.0
"""Standard deviations over test images by which an image must activate its neuron to count."""

F1 = Study(
    id="FL-F1",
    question="Are neurons of supervised training more colorful than those of contrastive training?",
    published="pictures: supervised neurons show shapes and colors, contrastive ones shapes",
    scales=SCALES,
    arms={
        "supervised": supervised("crop"),
        "contrastive": COLOR,
        "adversarial": contrastive("crop+color+adversarial", attack_steps=2),
        "untrained": UNTRAINED,
    },
    measure=neurons,
    figure=draw_neurons,
    findings=(
        Finding(
            id="FL-F1 supervised",
            criterion="the share of chroma is at least a fourth higher supervised than contrastive",
            value=more(COLORFUL, "supervised", "contrastive"),
            at_least=25.0,
            valid=above("activation, std", "supervised", CLEAR),
        ),
        Finding(
            id="FL-F1 contrastive",
            criterion="at least 25 points more of the activation remain in gray than of the mean "
            "color",
            value=lambda runs: runs["contrastive"][GRAY] - runs["contrastive"][UNIFORM],
            at_least=25.0,
            valid=above("activation, std", "contrastive", CLEAR),
        ),
        Finding(
            id="FL-F1 adversarial",
            criterion="the share of chroma is at least a fourth higher supervised than adversarial",
            value=more(COLORFUL, "supervised", "adversarial"),
            at_least=25.0,
            valid=above("activation, std", "adversarial", CLEAR),
        ),
    ),
)

F2 = Study(
    id="FL-F2",
    question="What do neurons show without augmentation, with crops, and with crops and color?",
    published="pictures: nothing without augmentation, mixtures of colors with crops, shapes with "
    "crops and color distortion",
    scales=SCALES,
    arms={"none": NO_VIEWS, "crop": CROP, "crop+color": COLOR, "untrained": UNTRAINED},
    measure=neurons,
    figure=draw_neurons,
    findings=(
        Finding(
            id="FL-F2 none",
            criterion="at least 10 points less of the activation remain in gray than with crops "
            "and color distortion",
            value=difference(GRAY, "crop+color", "none"),
            at_least=10.0,
            valid=above("activation, std", "none", CLEAR),
        ),
        Finding(
            id="FL-F2 crop",
            criterion="the share of chroma is at least a fourth higher than with color distortion",
            value=more(COLORFUL, "crop", "crop+color"),
            at_least=25.0,
            valid=above("activation, std", "crop", CLEAR),
        ),
        Finding(
            id="FL-F2 crop, color",
            criterion="at least 10 points more of the activation remain in gray than with crops",
            value=difference(GRAY, "crop+color", "crop"),
            at_least=10.0,
            valid=above("activation, std", "crop+color", CLEAR),
        ),
    ),
)


def mapped(trained: Trained) -> tuple[Tensor, np.ndarray]:
    """Return positions of test images by t-SNE of their features, [n, 2], and their classes."""
    images = first_test_images(trained, MAPPED)
    h = extract(trained.encoder, images.inputs)
    return tsne_map(h, seed=trained.seed), images.labels["class"]


def map_accuracy(trained: Trained) -> Measured:
    """Accuracy of the class of the ten nearest neighbors in the map, cross-validated."""
    from sklearn.model_selection import cross_val_score

    places, classes = mapped(trained)
    hits = cross_val_score(KNeighborsClassifier(10), places.numpy(), classes, cv=4)
    return {"class of neighbors in the map, %": round(100 * float(hits.mean()), 2)}


def draw_maps(trained: Mapping[str, Trained]) -> "Figure":
    """Draw the t-SNE map of each arm, colored by class."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(trained), 3.5), layout="constrained")
    grid = figure.subplots(1, len(trained), squeeze=False)[0]
    for axis, (name, arm) in zip(grid, trained.items(), strict=True):
        places, classes = mapped(arm)
        axis.scatter(*places.T.numpy(), c=classes, cmap="tab10", s=5, linewidths=0)
        axis.set(xticks=[], yticks=[], title=name)
    names = next(iter(trained.values())).test_set().classes["class"]
    handles, _ = axis.collections[0].legend_elements(num=list(range(len(names))))
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


IN_MAP = "class of neighbors in the map, %"

F3 = Study(
    id="FL-F3",
    question="Do color distortions separate the classes in a map of the features?",
    published="t-SNE of test images: dense without augmentation and with crops, clusters with "
    "crops and color distortion",
    scales=SCALES,
    arms=F2.arms,
    measure=map_accuracy,
    figure=draw_maps,
    findings=(
        Finding(
            id="FL-F3",
            criterion="the class of neighbors in the map is at least 3 points more accurate with "
            "crops and color distortion than without augmentation",
            value=difference(IN_MAP, "crop+color", "none"),
            at_least=3.0,
            valid=above(IN_MAP, "crop+color", CHANCE_10),
        ),
        Finding(
            id="FL-F3 color",
            criterion="it is at least 2 points more accurate with color distortion than with crops",
            value=difference(IN_MAP, "crop+color", "crop"),
            at_least=2.0,
            valid=above(IN_MAP, "crop+color", CHANCE_10),
        ),
    ),
)

CLASS, R2, WIDE_R2 = "class, %", "R^2 of color", "R^2 of color, wide"

MESSAGES = Study(
    id="FL-M",
    question="Which views leave the mean color of an image in the features?",
    published="crops alone leave dense mixtures of colors, color distortion removes some of them",
    scales=SCALES,
    arms={**F2.arms, "supervised": supervised("crop")},
    measure=color_and_class,
    findings=(
        Finding(
            id="FL-M2",
            criterion="R^2 of a linear readout of the mean color from pooled features is at least "
            "0.5 with crops",
            value=lambda runs: runs["crop"][R2],
            at_least=0.5,
            valid=above(CLASS, "crop", CHANCE_10),
        ),
        Finding(
            id="FL-M3",
            criterion="R^2 from pooled features is at least 0.1 lower with color distortion than "
            "with crops",
            value=difference(R2, "crop", "crop+color"),
            at_least=0.1,
            valid=above(CLASS, "crop+color", CHANCE_10),
        ),
        Finding(
            id="FL-M3 wide",
            criterion="the wide readout keeps what the pooled features lose: with color distortion "
            "its R^2 is at least 0.1 higher",
            value=lambda runs: runs["crop+color"][WIDE_R2] - runs["crop+color"][R2],
            at_least=0.1,
            valid=above(CLASS, "crop+color", CHANCE_10),
        ),
    ),
)

LAYERS = (2, 3, 4, 5)
RATE = "layers 2 to 5 fire, %"


def firing(trained: Trained) -> Measured:
    """Mean firing rate of the layers of AlexNet, in percent, and the accuracy of the class."""
    sets = trained.train_set(), first_test_images(trained)
    read = scores([extract(trained.encoder, images.inputs) for images in sets], *sets)
    x = image_batch(first_test_images(trained, FIRED).images, trained.device)
    rates = {
        name.rpartition(".")[2]: 100 * float(rate.mean())
        for name, rate in firing_rates(trained.encoder, x).items()
    }
    by_layer = {f"layer {k}, %": round(rates[f"relu{k}"], 2) for k in LAYERS}
    mean = round(sum(by_layer.values()) / len(by_layer), 2)
    return {RATE: mean, **by_layer, "class, %": read["class"]}


def draw_firing(trained: Mapping[str, Trained]) -> "Figure":
    """Draw the mean firing rate of each layer and arm."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axis = figure.subplots()
    for name, arm in trained.items():
        measured = firing(arm)
        axis.plot(LAYERS, [measured[f"layer {k}, %"] for k in LAYERS], marker="o", label=name)
    axis.set(xticks=LAYERS, xlabel="layer of AlexNet", ylabel="firing rate, %", ylim=(0, None))
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def _less_supervised(runs: SeedRuns) -> float:
    """Return how much less the denser one of both supervised encoders fires than crops."""
    return runs["crop"][RATE] - max(v[RATE] for k, v in runs.items() if k.startswith("supervised"))


F4 = Study(
    id="FL-F4",
    question="Which layers of AlexNet fire sparsely?",
    published="layers 2 to 5 fire more sparsely with color distortion; supervised ones always do",
    scales={
        "tiny": replace(TINY, encoder="alexnet"),
        "cpu": Scale(
            images=1000,
            epochs=6,
            encoder="alexnet",
            minutes=20,
            settings={"batch_size": 64, "image_size": 16, "lr": 1e-3},
        ),
        "gpu": Scale(
            images=None, epochs=200, encoder="alexnet", minutes=180, settings={"lr": 1e-3}
        ),
    },
    arms={
        "crop": CROP,
        "crop+color": COLOR,
        "supervised, crop": supervised("crop"),
        "supervised, crop+color": supervised("crop+color"),
        "untrained": UNTRAINED,
    },
    measure=firing,
    figure=draw_firing,
    findings=(
        Finding(
            id="FL-F4 color",
            criterion="with color distortion the mean rate of layers 2 to 5 is at least 5 points "
            "lower than that of an untrained encoder",
            value=difference(RATE, "untrained", "crop+color"),
            at_least=5.0,
            valid=above(CLASS, "crop+color", CHANCE_10),
        ),
        Finding(
            id="FL-F4 crop",
            criterion="with crops alone it is at least 2 points higher than with color distortion",
            value=difference(RATE, "crop", "crop+color"),
            at_least=2.0,
            valid=above(CLASS, "crop", CHANCE_10),
        ),
        Finding(
            id="FL-F4 supervised",
            criterion="supervised, with and without color distortion, it is at least 2 points "
            "lower than contrastive with crops",
            value=_less_supervised,
            at_least=2.0,
            valid=above(CLASS, "supervised, crop", CHANCE_10),
        ),
    ),
)

STUDIES = [F1, F2, F3, MESSAGES, F4]
