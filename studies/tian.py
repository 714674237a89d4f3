"""Tian: understanding the role of nonlinearity in training dynamics of contrastive learning."""

from collections.abc import Mapping
from functools import cache

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from studies.study import (
    CHANCE_10,
    TINY,
    TOGETHER,
    Arm,
    Finding,
    Measured,
    Scale,
    Study,
    above,
    difference,
)
from studies.trained import Trained, probes
from widefield.methods.alpha_cl import alpha_cl
from widefield_labs.one_layer import ascend, summation

FEATURES, RATE, PAIRS = 6, 0.1, 128
CLOSE = 0.9
"""Cosine from which a row has learned a feature."""


def volumes(s: Tensor, start: Tensor) -> Tensor:
    """Return the share of rows `start` [R, M] that equation 7 leads to each feature, [M].

    The data are x = sum_m s_m y_m u_m with scales s [M], with the covariance of the population.
    """
    y, p = summation(torch.full_like(s, RATE))
    return _shares(ascend(start, s * y, p, steps=200, step_size=1.0))


def frequencies(s: Tensor, start: Tensor, *, steps: int, generator: Generator) -> Tensor:
    """Return the share of ReLU rows that learn each feature by alpha-CL on batches, [M].

    A step ascends the energy of equation 2 with alpha = 1, on new pairs of noisy views.
    """
    w, alpha = start, 1 - torch.eye(PAIRS, dtype=s.dtype)
    for _ in range(steps):
        on = torch.rand(PAIRS, len(s), generator=generator, dtype=s.dtype) < RATE
        y = torch.where(on, ((1 - RATE) / RATE) ** 0.5, -((RATE / (1 - RATE)) ** 0.5))
        noise = 0.1 * torch.randn(2, PAIRS, len(s), generator=generator, dtype=s.dtype)
        w = w.detach().requires_grad_()
        first, second = ((s * y + x) @ w.mT for x in noise)
        loss = alpha_cl(first.relu(), second.relu(), alpha)
        (gradient,) = torch.autograd.grad(loss, w)
        # Each row moves by a tenth of its length where the gradient is as long as on average.
        w = normalize(w.detach() - 0.1 * gradient / gradient.norm(dim=-1).mean(), dim=-1)
    return _shares(w)


def _shares(w: Tensor) -> Tensor:
    return (w.abs() > CLOSE).to(w.dtype).mean(0)


def _random_rows(rows: int, generator: Generator, *, around: Tensor | None = None) -> Tensor:
    """Return unit rows [R, M]: anywhere, or close to one direction."""
    w = torch.randn(rows, FEATURES, generator=generator, dtype=torch.float64)
    return normalize(w if around is None else around + 0.3 * w / FEATURES**0.5, dim=-1)


@cache
def _simulated(seed: int, tiny: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the scales, the volumes and two kinds of frequencies of all features, [M] each.

    The second frequencies are those of rows that start close together.
    """
    rows, steps = (200, 20) if tiny else (4000, 200)
    generator = torch.Generator().manual_seed(seed)
    s = 0.6 + 0.4 * torch.rand(FEATURES, generator=generator, dtype=torch.float64)
    of_basin = volumes(s, _random_rows(rows, generator))
    found = frequencies(s, _random_rows(rows // 2, generator), steps=steps, generator=generator)
    anchor = _random_rows(1, generator)
    close = _random_rows(rows // 2, generator, around=anchor)
    return s, of_basin, found, frequencies(s, close, steps=steps, generator=generator)


def _of(trained: Trained) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _simulated(trained.seed, trained.scale.images is not None)


def _of_feature(trained: Trained) -> Measured:
    """Volume and frequency of the feature of one rank."""
    s, of_basin, found, _ = _of(trained)
    at = s.argsort(descending=True)[trained.arm.about["rank"]]
    values = {"scale": s, "volume of the basin": of_basin, "frequency among rows": found}
    return {name: round(float(value[at]), 4) for name, value in values.items()}


def _basins(trained: Mapping[str, Trained]) -> Measured:
    """How often rows learn each feature, beside the volumes of the basins."""
    s, of_basin, found, found_close = _of(next(iter(trained.values())))
    return {
        "correlation of frequency and volume": _correlation(of_basin, found),
        "correlation, rows start close together": _correlation(of_basin, found_close),
        "correlation of scale and volume": _correlation(s, of_basin),
    }


def _correlation(a: Tensor, b: Tensor) -> float:
    """Return Pearson's correlation; 0 where one is constant."""
    a, b = a - a.mean(), b - b.mean()
    return round(float(a @ b / (a.norm() * b.norm()).clamp_min(1e-12)), 4)


BASINS = Study(
    id="NL-basins",
    question="Do the volumes of the basins decide which features rows from random starts learn?",
    published="left open; section 4",
    scales={"tiny": TINY, "cpu": Scale(images=None, epochs=1, seeds=(0, 1, 2, 3, 4), minutes=3)},
    missing={"gpu": "one layer with six features takes seconds on a CPU"},
    arms={
        f"feature {i + 1} by scale": Arm(data="cifar10", settings=None, about={"rank": i})
        for i in range(FEATURES)
    },
    measure=_of_feature,
    together=_basins,
    findings=(
        Finding(
            id="NL-4 basins",
            criterion="volume under equation 7 and frequency after training on batches correlate "
            "by at least 0.9 over the features",
            value=lambda runs: float(runs[TOGETHER]["correlation of frequency and volume"]),
            at_least=0.9,
        ),
    ),
)

_SAME_LOSS = difference("class, %", "alpha-CL, infonce", "InfoNCE")
IMAGES = Study(
    id="NL-images",
    question="What do the pair weights of alpha-CL do on images, beside InfoNCE?",
    published="no images; equation 2 with quadratic, InfoNCE's and Gaussian weights",
    scales={
        "tiny": TINY,
        "cpu": Scale(images=2500, epochs=6, minutes=12),
        "gpu": Scale(images=None, epochs=100, encoder="resnet18", minutes=120),
    },
    arms={
        "InfoNCE": Arm(data="cifar10", settings={"method": "infonce"}),
        **{
            f"alpha-CL, {kind}": Arm(
                data="cifar10", settings={"method": "alpha-cl", "pair_importance": kind}
            )
            for kind in ("infonce", "quadratic", "gaussian")
        },
        "untrained": Arm(data="cifar10", settings=None),
    },
    measure=probes,
    findings=(
        Finding(
            id="NL-E2 images",
            criterion="alpha-CL with InfoNCE's weights is within 3 points of InfoNCE",
            value=lambda runs: 3 - abs(_SAME_LOSS(runs)),
            valid=above("class, %", "InfoNCE", CHANCE_10),
        ),
        Finding(
            id="NL-quadratic",
            criterion="InfoNCE's weights are at least 1 point above quadratic ones",
            value=difference("class, %", "alpha-CL, infonce", "alpha-CL, quadratic"),
            at_least=1.0,
            valid=above("class, %", "InfoNCE", CHANCE_10),
        ),
    ),
)
STUDIES = [BASINS, IMAGES]
