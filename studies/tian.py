"""Tian: understanding the role of nonlinearity in training dynamics of contrastive learning."""

from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from studies.study import (
    TINY,
    Arm,
    Finding,
    Gate,
    Measured,
    Scale,
    SeedRuns,
    Study,
    at_rates,
    difference,
)
from studies.trained import Trained, probes
from widefield.methods.alpha_cl import alpha_cl
from widefield_labs.one_layer import ascend, summation

FEATURES, FREQUENT, PAIRS = 6, 0.1, 128
SCALE, VOLUME, FOUND = "scale", "volume of the basin", "frequency among rows"
CLOSE = 0.9
"""Cosine from which a row has learned a feature."""


def volumes(s: Tensor, rate: Tensor, start: Tensor) -> Tensor:
    """Return the share of rows `start` [R, M] that equation 7 leads to each feature, [M].

    The data are x = sum_m s_m y_m u_m with scales s [M] and y_m of `rate` [M], with the covariance
    of the population.
    """
    y, p = summation(rate)
    return _shares(ascend(start, s * y, p, steps=200, step_size=1.0))


def frequencies(
    s: Tensor, rate: Tensor, start: Tensor, *, steps: int, generator: Generator
) -> Tensor:
    """Return the share of ReLU rows that learn each feature by alpha-CL on batches, [M].

    A step ascends the energy of equation 2 with alpha = 1, on new pairs of noisy views.
    """
    w, alpha = start, 1 - torch.eye(PAIRS, dtype=s.dtype)
    for _ in range(steps):
        on = torch.rand(PAIRS, len(s), generator=generator, dtype=s.dtype) < rate
        y = torch.where(on, ((1 - rate) / rate).sqrt(), -(rate / (1 - rate)).sqrt())
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
def _simulated(seed: int, tiny: bool, by: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what features differ by, volumes and two kinds of frequencies, [M] each.

    They differ by their scale or by their rate. The second frequencies are those of rows that start
    close together.
    """
    rows, steps = (200, 20) if tiny else (4000, 200)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(FEATURES, generator=generator, dtype=torch.float64)
    s = 0.6 + 0.4 * drawn if by == SCALE else torch.ones_like(drawn)
    rate = torch.full_like(drawn, FREQUENT) if by == SCALE else 0.05 + 0.3 * drawn
    of_basin = volumes(s, rate, _random_rows(rows, generator))
    differs, found = s if by == SCALE else rate, []
    for anchored in (False, True):
        anchor = _random_rows(1, generator) if anchored else None
        start = _random_rows(rows // 2, generator, around=anchor)
        found.append(frequencies(s, rate, start, steps=steps, generator=generator))
    return differs, of_basin, found[0], found[1]


def _of(trained: Trained) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tiny = trained.scale.images is not None
    return _simulated(trained.seed, tiny, trained.arm.about["by"])


def _of_feature(trained: Trained) -> Measured:
    """Volume and frequency of the feature of one rank."""
    differs, of_basin, found, _ = _of(trained)
    at = differs.argsort(descending=True)[trained.arm.about["rank"]]
    values = {trained.arm.about["by"]: differs, VOLUME: of_basin, FOUND: found}
    return {name: round(float(value[at]), 4) for name, value in values.items()}


def _basins(trained: Mapping[str, Trained]) -> Measured:
    """How often rows learn each feature, beside the volumes of the basins."""
    first = next(iter(trained.values()))
    differs, of_basin, found, found_close = _of(first)
    return {
        "correlation of frequency and volume": _correlation(of_basin, found),
        "correlation, rows start close together": _correlation(of_basin, found_close),
        f"correlation of {first.arm.about['by']} and volume": _correlation(differs, of_basin),
    }


def _given(by: str) -> Callable[[SeedRuns], float]:
    """Return the value of a finding: the partial correlation of volume and frequency.

    What a straight line in `by` explains is taken out of both.
    """

    def value(runs: SeedRuns) -> float:
        features = [runs[f"feature {i + 1} by {by}"] for i in range(FEATURES)]
        x, *both = torch.tensor([[f[k] for f in features] for k in (by, VOLUME, FOUND)]).double()
        x = x - x.mean()
        volume, found = (y - y.mean() - (x @ y / (x @ x)) * x for y in both)
        return _correlation(volume, found)

    return value


def _correlation(a: Tensor, b: Tensor) -> float:
    """Return Pearson's correlation; 0 where one is constant."""
    a, b = a - a.mean(), b - b.mean()
    return round(float(a @ b / (a.norm() * b.norm()).clamp_min(1e-12)), 4)


def _study_of_basins(id: str, by: str, finding: str, conclusion: str = "") -> Study:
    """Return the study of features that differ by their scale or by their rate."""
    return Study(
        id=id,
        question=f"Do the volumes of basins decide which of features of unequal {by} rows learn?",
        published="left open; section 4",
        scales={
            "tiny": TINY,
            "cpu": Scale(images=None, epochs=1, seeds=tuple(range(5)), minutes=3),
        },
        missing={"gpu": "one layer with six features takes seconds on a CPU"},
        arms={
            f"feature {i + 1} by {by}": Arm(
                data="cifar10", settings=None, about={"rank": i, "by": by}
            )
            for i in range(FEATURES)
        },
        measure=_of_feature,
        together=_basins,
        findings=(
            Finding(
                id=finding,
                criterion="volume under equation 7 and frequency after training on batches "
                f"correlate by at least 0.5 over the features, given {by}",
                value=_given(by),
                at_least=0.5,
            ),
        ),
        conclusion=conclusion,
    )


BASINS = _study_of_basins(
    "NL-basins",
    SCALE,
    "NL-4 basins",
    "The criterion was a correlation of 0.9 when the study ran, which the scale alone meets.",
)
BASINS_OF_RATES = _study_of_basins("NL-basins-rates", "rate", "NL-basins-rates")

_SAME_LOSS = difference("class, %", "alpha-CL, infonce", "InfoNCE")
IMAGES = Study(
    id="NL-images",
    question="What do the pair weights of alpha-CL do on images, beside InfoNCE?",
    published="no images; equation 2 with quadratic, InfoNCE's and Gaussian weights",
    scales={
        "tiny": TINY,
        "cpu": Scale(images=2500, epochs=6, minutes=12),
        "gpu": Scale(images=47_000, epochs=100, encoder="resnet18", minutes=120),
    },
    arms=at_rates(
        {
            "InfoNCE": Arm(data="cifar10", settings={"method": "infonce"}),
            **{
                f"alpha-CL, {kind}": Arm(
                    data="cifar10", settings={"method": "alpha-cl", "pair_importance": kind}
                )
                for kind in ("infonce", "quadratic", "gaussian")
            },
            "untrained": Arm(data="cifar10", settings=None),
        }
    ),
    gate=Gate(),
    measure=probes,
    findings=(
        Finding(
            id="NL-E2 images",
            criterion="alpha-CL with InfoNCE's weights is within 3 points of InfoNCE",
            value=lambda runs: 3 - abs(_SAME_LOSS(runs)),
            trained=("InfoNCE", "alpha-CL, infonce"),
        ),
        Finding(
            id="NL-quadratic",
            criterion="InfoNCE's weights are at least 1 point above quadratic ones",
            value=difference("class, %", "alpha-CL, infonce", "alpha-CL, quadratic"),
            at_least=1.0,
            trained=("alpha-CL, infonce", "alpha-CL, quadratic"),
        ),
    ),
    conclusion=(
        "The Gaussian weights are of the mean of an example's two projected views, which stands "
        "for its image without augmentation."
    ),
)
STUDIES = [BASINS, BASINS_OF_RATES, IMAGES]
