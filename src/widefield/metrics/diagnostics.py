"""Label-free diagnostics of features, by name."""

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from torch import Tensor

from widefield.metrics.hypersphere import uniformity
from widefield.metrics.spectrum import (
    Spectrum,
    alpha_req,
    dead_dimensions,
    effective_rank,
    feature_std,
    large_singular_values,
    participation_ratio,
    possible_rank,
    rankme,
    spectrum_of,
    stable_rank,
)


class Diagnostic(NamedTuple):
    """A measure of a set of features, without labels."""

    measure: Callable[[Spectrum], float]
    """Function of the spectrum; the features are `spectrum.features`, float64 [n, D]. It raises
    `ValueError` where the measure is not defined."""
    meaning: str
    """Explanation for a reader who does not know the name."""


DIAGNOSTICS: dict[str, Diagnostic] = {
    "effective_rank": Diagnostic(
        effective_rank,
        "directions that the features use, each weighted by its share of the spread",
    ),
    "rankme": Diagnostic(
        rankme,
        "the same without centering; among similar runs, a higher value predicted better probes",
    ),
    "participation_ratio": Diagnostic(
        participation_ratio, "the same from squared shares: large directions count more"
    ),
    "stable_rank": Diagnostic(
        stable_rank, "the spread in units of that along the strongest direction"
    ),
    "alpha_req": Diagnostic(
        alpha_req,
        "decay of the spread from direction to direction; about 1 is usual for good features, "
        "more means that few directions dominate",
    ),
    "large_singular_values": Diagnostic(
        large_singular_values, "directions that are at least a tenth as strong as the strongest"
    ),
    "possible_rank": Diagnostic(
        possible_rank, "maximum number of directions for this number of images and features"
    ),
    "feature_std": Diagnostic(
        feature_std, "spread of normalized features; near 0 the features of all images are equal"
    ),
    "dead_dimensions": Diagnostic(dead_dimensions, "features that hardly vary between images"),
    "uniformity": Diagnostic(
        uniformity,
        "how uniformly images fill the unit sphere; lower is more uniform, 0 is one point",
    ),
}
"""Name -> diagnostic, in the order of an audit."""


def describe(h: Tensor | Spectrum) -> dict[str, float | None]:
    """Measure every entry of `DIAGNOSTICS` on features h [n, D]; None where it is not defined.

    Raises `ValueError` for anything but finite features [n, D] with n >= 2.

    Example:
        >>> import torch
        >>> describe(torch.ones(9, 4))["dead_dimensions"], describe(torch.ones(9, 4))["alpha_req"]
        (4.0, None)
    """
    spectrum = spectrum_of(h)
    values: dict[str, float | None] = dict.fromkeys(DIAGNOSTICS)
    for name, diagnostic in DIAGNOSTICS.items():
        with suppress(ValueError):  # not defined for these features
            values[name] = float(diagnostic.measure(spectrum))
    return values
