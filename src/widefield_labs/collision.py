"""Repeated augmentation sends images of different classes to one image.

Tamkin et al., "Feature Dropout" (2022), section 2 and Appendix B. A collision (Definition B.2) is a
pair x, x' with t(x) = t'(x') for some t, t' composed of transformations of one set. A function
that is invariant to the set takes one value on such a pair (Observation B.3), so a label that
differs between them cannot be read off it. Here t = t', drawn once for all images of a trial, which
is harder than the definition asks. The images are scikit-learn's digits: 64 pixels, 17 levels.

Brightness: level <- clip(level +- s), N = 16/s. A random walk merges black and white when its range
first reaches N, which takes N(N + 1)/2 repeats on average (from range r to r + 1: r + 1 repeats).
Masking: each pixel survives t repeats with probability q^t, so two images that differ in h pixels
are equal with probability (1 - q^t)^h.
Contrast: x <- clip(mean + c (x - mean)), c ~ U(1 - s, 1 + s). Clipping brings no two values further
apart, so a standard deviation shrinks at least by the product of the c, and E log c < 0.
"""

import math
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Interval
from numpy.typing import NDArray
from torch import Generator, Tensor

from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close

TOP = 16  # the digits' brightest level
DEVIATIONS = 4.0  # standard errors of a Monte-Carlo mean that a prediction may be off


def digits(count: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw `count` distinct images [n, 64] of levels 0..16, and their classes [n]."""
    from sklearn.datasets import load_digits

    data = load_digits()
    chosen = torch.randperm(len(data.target), generator=generator)[:count]
    images, labels = torch.from_numpy(data.data).long(), torch.from_numpy(data.target).long()
    return images[chosen], labels[chosen]


def count_merged(images: Tensor, labels: Tensor, generator: Generator) -> Tensor:
    """Count what has become equal among integer images [R, n, P] of classes [n]: [R, 3].

    Columns: distinct images; share of the pairs of unequal class that are equal; best accuracy of
    a function that takes one value on equal images.
    """
    trials, count, pixels = images.shape
    # Equal images have equal hashes; unequal ones collide with probability 2^-64.
    weight = torch.randint(-(2**62), 2**62, (pixels,), generator=generator)
    key = torch.stack([torch.arange(trials).repeat_interleave(count), (images @ weight).flatten()])
    _, group = torch.unique(key, dim=1, return_inverse=True)
    classes = int(labels.max()) + 1
    flat = group * classes + labels.repeat(trials)
    table = torch.bincount(flat, minlength=(int(group.max()) + 1) * classes).view(-1, classes)
    size = table.sum(1)
    trial_of = torch.zeros(len(size), dtype=torch.long).scatter_(0, group, key[0])
    mixed_pairs = (size**2 - (table**2).sum(1)).double()
    columns = torch.stack([torch.ones(len(size)).double(), mixed_pairs, table.amax(1).double()], 1)
    totals = torch.zeros(trials, 3, dtype=torch.float64).index_add_(0, trial_of, columns)
    of_class = torch.bincount(labels, minlength=classes)
    return totals / torch.tensor([1, count**2 - int((of_class**2).sum()), count])


def brightness_maps(step: int, trials: int, repeats: int, generator: Generator) -> Tensor:
    """Return where each level is after each repeat, int64 [repeats + 1, R, 17]."""
    level = torch.arange(TOP + 1).expand(trials, -1)
    maps = [level]
    for sign in torch.randint(2, (repeats, trials, 1), generator=generator) * 2 - 1:
        level = (level + step * sign).clamp(0, TOP)
        maps.append(level)
    return torch.stack(maps)


def differing_pixels(images: Tensor, labels: Tensor, pairs: int, generator: Generator) -> Tensor:
    """Return where random pairs of images of unequal class differ, float [at most pairs, P]."""
    first, second = torch.randint(len(images), (2, pairs), generator=generator)
    unequal = labels[first] != labels[second]
    return (images[first[unequal]] != images[second[unequal]]).float()


def log_factor_moments(strength: float) -> tuple[float, float]:
    """Return mean and deviation of log c for c ~ U(1 - strength, 1 + strength), strength < 1."""

    def integrals(c: float) -> tuple[float, float]:
        log = math.log(c)
        return c * (log - 1), c * (log**2 - 2 * log + 2)

    low, high = integrals(1 - strength), integrals(1 + strength)
    mean, square = ((b - a) / (2 * strength) for a, b in zip(low, high, strict=True))
    return mean, math.sqrt(square - mean**2)


def change_contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Change the contrast of x [R, n, P] in [0, 1] once, by factors [R]."""
    mean = x.mean(-1, keepdim=True)
    return (mean + factor.view(-1, 1, 1) * (x - mean)).clamp(0, 1)


def repeats_up_to(last: float) -> list[int]:
    """Return 0 and about 20 whole numbers, evenly spaced on a log scale."""
    return [0, *np.unique(np.geomspace(1, last, 24).round().astype(int)).tolist()]


def repeat_brightness(
    images: Tensor, labels: Tensor, step: int, trials: int, generator: Generator
) -> Arrays:
    """Follow `trials` trials, and 50 times as many up to the repeat at which all levels are one."""
    expected = (TOP // step) * (TOP // step + 1) / 2
    maps = brightness_maps(step, 50 * trials, math.ceil(12 * expected), generator)
    one_level = maps[..., 0] == maps[..., -1]
    repeats = repeats_up_to(4 * expected)
    counts = [count_merged(maps[t, :trials][:, images], labels, generator) for t in repeats]
    return {
        "brightness_repeats": np.array(repeats),
        "brightness": torch.stack(counts).numpy(),
        "brightness_merged_at": one_level.long().argmax(0).numpy(),
        "brightness_merged": one_level[-1].numpy(),
        "brightness_expected": np.array(expected),
    }


def repeat_masking(
    images: Tensor, labels: Tensor, rate: float, trials: int, generator: Generator
) -> Arrays:
    """Follow `trials` trials; compare equal pairs with (1 - q^t)^h, over 50 times as many."""
    repeats = repeats_up_to(math.log(1e-4) / math.log(1 - rate))  # then a pixel survives in 1e-4
    survive = (1 - rate) ** torch.tensor(repeats)
    # A pixel is blanked for good at a geometric time, so one uniform draw gives all its history.
    clock = torch.rand(50 * trials, images.shape[1], generator=generator)
    counts = [
        count_merged(images * (clock[:trials, None] < alive), labels, generator)
        for alive in survive
    ]
    differ = differing_pixels(images, labels, 2000, generator)
    equal = [(differ @ (clock < alive).float().T == 0).double().mean(0) for alive in survive]
    expected = (1 - survive.unsqueeze(1)) ** differ.sum(1)
    return {
        "masking_repeats": np.array(repeats),
        "masking": torch.stack(counts).numpy(),
        "masking_equal": torch.stack(equal).numpy(),
        "masking_expected": expected.mean(1).numpy(),
    }


def repeat_contrast(
    images: Tensor, labels: Tensor, strength: float, trials: int, generator: Generator
) -> Arrays:
    """Follow `trials` trials; measure over 50 times as many how far deviations shrink."""
    mean, deviation = log_factor_moments(strength)
    depth = math.log(1e-3)  # far below one of 255 grays
    # All but 0.1 % of the trials get there within t repeats: t mean + 3 sqrt(t) deviation = depth.
    root = (3 * deviation + math.sqrt(9 * deviation**2 + 4 * mean * depth)) / (-2 * mean)
    repeats = repeats_up_to(root**2)
    draws = torch.rand(repeats[-1], 50 * trials, generator=generator, dtype=torch.float64)
    factors = 1 + strength * (2 * draws - 1)
    x, counts = (images / TOP).double().expand(trials, -1, -1), []
    for repeat in range(repeats[-1] + 1):
        if repeat in repeats:
            counts.append(count_merged((255 * x).round().long(), labels, generator))
        if repeat < repeats[-1]:
            x = change_contrast(x, factors[repeat, :trials])
    few = (images[:50] / TOP).double()
    y = few.expand(50 * trials, -1, -1)
    counted = factors[: math.ceil(depth / mean)]
    for factor in counted:
        y = change_contrast(y, factor)
    return {
        "contrast_repeats": np.array(repeats),
        "contrast": torch.stack(counts).numpy(),
        "contrast_log_shrinkage": (y.std(-1).mean(-1) / few.std(-1).mean(-1)).log().numpy(),
        "contrast_log_factor": counted.log().sum(0).numpy(),
        "contrast_expected": np.array(mean * len(counted)),
    }


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test the three closed forms, and what follows for any invariant classifier."""
    time, equal = arrays["brightness_merged_at"], arrays["masking_equal"]
    half = int((arrays["masking_expected"] >= 0.5).argmax())
    shrinkage = arrays["contrast_log_shrinkage"]

    def error(sample: NDArray[Any]) -> float:
        return float(DEVIATIONS * sample.std() / math.sqrt(len(sample)))

    return (
        close(
            "brightness: mean repeats until all images are one is N(N + 1)/2",
            time.mean(),
            float(arrays["brightness_expected"]),
            tolerance=error(time),
        ),
        at_least(
            "brightness: share of trials in which all images end as one",
            arrays["brightness_merged"].mean(),
            0.999,
        ),
        close(
            "masking: share of equal pairs of unequal class, where it should pass one half",
            equal[half].mean(),
            arrays["masking_expected"][half],
            tolerance=error(equal[half]),
        ),
        close(
            "masking: best accuracy of an invariant classifier at the end is the largest class",
            arrays["masking"][-1, :, 2].mean(),
            float(arrays["largest_class"]),
            tolerance=0.05,  # one of 64 pixels survives in 0.6 % of the trials
        ),
        at_most(
            "contrast: log shrinkage of the deviations (mean) against repeats times E log c",
            shrinkage.mean(),
            float(arrays["contrast_expected"]),
            tolerance=error(shrinkage),
        ),
        at_most(
            "contrast: log shrinkage less the log of the factors' product (largest)",
            (shrinkage - arrays["contrast_log_factor"]).max(),
            0.0,
            tolerance=1e-3,  # a deviation of 1e-9 keeps this many of float64's digits
        ),
        at_most(
            "contrast: distinct 8-bit images at the end are at most the 256 grays (median)",
            np.median(arrays["contrast"][-1, :, 0]),
            256,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say how far each kind of repeat really goes."""
    once = ", ".join(
        f"{name} {arrays[name][1, :, 1].mean():.1%}"
        for name in ("brightness", "masking", "contrast")
    )
    distinct, accuracy = arrays["contrast"][-1, :, 0].mean(), arrays["contrast"][-1, :, 2].mean()
    return (
        "A collision needs repeats: pairs of unequal class that one application makes equal: "
        f"{once}.",
        "Brightness and masking end in one image for all. Contrast alone ends in flat grays, "
        f"{distinct:.0f} distinct ones here, which keep each image apart by its mean: the best "
        f"accuracy of an invariant classifier stays {accuracy:.2f}.",
        "N(N + 1)/2 is for steps up and down that are equally likely; a biased walk is faster.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw distinct images, equal pairs of unequal class and the best accuracy over the repeats."""
    panels = figure.subplots(1, 3)
    titles = ("distinct images", "equal pairs of unequal class [share]", "best invariant accuracy")
    for column, (axes, title) in enumerate(zip(panels, titles, strict=True)):
        for name, marker in (("brightness", "o"), ("masking", "s"), ("contrast", "^")):
            mean = arrays[name][..., column].mean(1)
            label = name if column == 1 else None
            axes.plot(arrays[f"{name}_repeats"], mean, label=label, marker=marker, ms=3)
        axes.set(xlabel="repeats of the augmentation", xscale="symlog", ylabel=title)
    panels[1].plot(
        arrays["masking_repeats"],
        arrays["masking_expected"],
        "x",
        color="black",
        label="masking, predicted",
    )
    panels[0].axvline(arrays["brightness_expected"], color="0.4", lw=0.8)
    panels[0].set(title="gray line: N(N + 1)/2", yscale="log")
    panels[2].axhline(arrays["largest_class"], color="0.4", lw=0.8)
    panels[2].set(title="gray line: largest class", ylim=(0, 1.05))


def measure(
    *,
    scale: Scale,
    generator: Generator,
    brightness_step: Literal[1, 2, 4, 8, 16] = 2,
    mask_rate: Annotated[float, Interval(ge=0.001, le=0.99)] = 0.1,
    contrast_strength: Annotated[float, Interval(ge=0.3, lt=1)] = 0.8,
) -> Arrays:
    """Repeat three augmentations on digits until images of different classes are one image.

    `brightness_step` is in levels of 16. `mask_rate` is the probability that one repeat blanks a
    pixel; near 1 no pixel survives the first. `contrast_strength` s is that of the factors,
    c ~ U(1 - s, 1 + s); the repeats needed grow as 1/s^2.
    """
    images, labels = digits(at_scale(scale, tiny=200, default=1797), generator)
    trials = at_scale(scale, tiny=8, default=16)
    return {
        **repeat_brightness(images, labels, brightness_step, trials, generator),
        **repeat_masking(images, labels, mask_rate, trials, generator),
        **repeat_contrast(images, labels, contrast_strength, trials, generator),
        "largest_class": (torch.bincount(labels).max() / len(labels)).numpy(),
    }
