"""What encoders have learned: color in features, neurons, maps and firing rates.

An image x that maximizes a neuron a, with the mean m of a over test images, is compared with its
gray version and with a uniform image of its mean color:

    remaining activation = (a(x') - m) / (a(x) - m), clipped to [0, 1]
"""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from studies.maximize import activation_maximization, color_axes
from studies.study import Measured, percent
from studies.trained import Trained, accuracies, scores
from widefield.data import Dataset
from widefield.metrics import firing_rates, tsne_map
from widefield.probes import extract
from widefield.probes.features import image_batch

NEURONS, SHOWN = 64, 10
"""Features that vary most over test images: measured ones, and those in a figure."""
MAPS_IN_ROW = 5
"""t-SNE maps in a row of a figure."""
TESTED, MAPPED, BASELINE, FIRED = 2000, 1000, 256, 200
"""Test images of the probes, of a t-SNE map, of the mean of a neuron, and of firing rates."""
LAYERS = (2, 3, 4, 5)
COLORFUL = "chroma, % of the variance"
GRAY, UNIFORM = "remaining in gray, %", "remaining of the mean color, %"
CLEAR_SHARE, STRENGTH = "clear neurons, %", "activation, std"
CLEAR = 2.0
"""Standard deviations over test images by which an image must activate its neuron to count."""
IN_MAP = "class of neighbors in the map, %"
CLASS, R2, WIDE_R2 = "class, %", "R^2 of color", "R^2 of color, wide"
RATE = "layers 2 to 5 fire, %"


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
    ridge = RidgeCV(np.logspace(-2, 5, 15)).fit(fit, chroma(train_x).cpu().numpy())
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
        read = scores(features, sets, pooled=pooled if name else None)
        measured[f"class{name}, %"] = percent(read["class"].value)
        measured[f"R^2 of color{name}"] = round(color_r2(features[0], x, features[1], test_x), 4)
    return measured


def preferred(trained: Trained, neurons: int) -> tuple[Tensor, list[int], Tensor]:
    """Return images that maximize the features that vary most, these, and h of test images."""
    x = image_batch(first_test_images(trained, BASELINE).images, trained.device)
    with torch.no_grad():
        h = trained.encoder(x)
    units = h.std(0).topk(min(neurons, h.shape[1])).indices.tolist()
    _, channels, height, width = x.shape
    images = activation_maximization(
        trained.encoder, units, shape=(channels, height, width), color=color_axes(x)
    )
    return images, units, h


def neurons(trained: Trained) -> Measured:
    """What the images that maximize neurons are made of: color and shape.

    It is the mean over the neurons that these images activate clearly, if there are any.
    """
    x, units, h = preferred(trained, NEURONS)
    gray = x.mean(1, keepdim=True).expand_as(x)
    uniform = x.mean((2, 3), keepdim=True).expand_as(x)
    rows = torch.arange(len(units))
    with torch.no_grad():
        whole, shape, color = (trained.encoder(v)[rows, units] for v in (x, gray, uniform))
    mean, std = h[:, units].mean(0), h[:, units].std(0)
    strength = (whole - mean) / std
    clear = strength > CLEAR
    kept = clear if clear.any() else torch.ones_like(clear)
    share = (x - gray).square().sum((1, 2, 3)) / (x - 0.5).square().sum((1, 2, 3))

    def percent(values: Tensor) -> float:
        return round(100 * float(values[kept].mean()), 3)

    return {
        CLEAR_SHARE: round(100 * float(clear.float().mean()), 1),
        COLORFUL: percent(share),
        GRAY: percent(((shape - mean) / (whole - mean)).clamp(0, 1)),
        UNIFORM: percent(((color - mean) / (whole - mean)).clamp(0, 1)),
        STRENGTH: round(float(strength.median()), 2),
    }


def draw_neurons(trained: Mapping[str, Trained]) -> Figure:
    """Draw a row of images that maximize neurons for each arm."""
    figure = Figure(figsize=(11, 1.2 * len(trained)), layout="constrained")
    grid = figure.subplots(len(trained), SHOWN, squeeze=False)
    for (name, arm), axes in zip(trained.items(), grid, strict=True):
        images, _, _ = preferred(arm, SHOWN)
        for axis, image in zip(axes, images, strict=True):
            axis.imshow(image.permute(1, 2, 0).cpu().numpy(), interpolation="nearest")
            axis.set(xticks=[], yticks=[], frame_on=False)
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return figure


def mapped(trained: Trained) -> tuple[Tensor, np.ndarray]:
    """Return positions of test images by t-SNE of their features, [n, 2], and their classes."""
    images = first_test_images(trained, MAPPED)
    h = extract(trained.encoder, images.inputs)
    return tsne_map(h, seed=trained.seed), images.labels["class"]


def map_accuracy(trained: Trained) -> Measured:
    """Accuracy of the class of the ten nearest neighbors in the map, cross-validated."""
    places, classes = mapped(trained)
    hits = cross_val_score(KNeighborsClassifier(10), places.numpy(), classes, cv=KFold(4))
    return {IN_MAP: percent(hits.mean())}


def draw_maps(trained: Mapping[str, Trained]) -> Figure:
    """Draw the t-SNE map of each arm, colored by class."""
    columns = min(MAPS_IN_ROW, len(trained))
    rows = -(-len(trained) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.7 * rows + 0.3), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    used, empty = grid[: len(trained)], grid[len(trained) :]
    for axis in empty:
        axis.remove()
    for axis, (name, arm) in zip(used, trained.items(), strict=True):
        places, classes = mapped(arm)
        axis.scatter(*places.T.numpy(), c=classes, cmap="tab10", s=5, linewidths=0)
        axis.set(xticks=[], yticks=[], title=name)
    names = next(iter(trained.values())).test_set().classes["class"]
    handles, _ = axis.collections[0].legend_elements(num=list(range(len(names))))
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def firing(trained: Trained) -> Measured:
    """Mean firing rate of the layers of AlexNet, in percent, and the accuracy of the class."""
    sets = trained.train_set(), first_test_images(trained)
    read = accuracies(trained.encoder, sets)
    x = image_batch(first_test_images(trained, FIRED).images, trained.device)
    rates = {
        name.rpartition(".")[2]: 100 * float(rate.mean())
        for name, rate in firing_rates(trained.encoder, x).items()
    }
    by_layer = {f"layer {k}, %": round(rates[f"relu{k}"], 2) for k in LAYERS}
    mean = round(sum(by_layer.values()) / len(by_layer), 2)
    return {RATE: mean, **by_layer, CLASS: read["class"]}


def draw_firing(trained: Mapping[str, Trained]) -> Figure:
    """Draw the mean firing rate of each layer and arm."""
    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axis = figure.subplots()
    for name, arm in trained.items():
        measured = firing(arm)
        axis.plot(LAYERS, [measured[f"layer {k}, %"] for k in LAYERS], marker="o", label=name)
    axis.set(xticks=LAYERS, xlabel="layer of AlexNet", ylabel="firing rate, %", ylim=(0, None))
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    axis.spines[["top", "right"]].set_visible(False)
    return figure
