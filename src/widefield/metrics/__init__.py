"""Features, layers, encoders -> numbers and pictures of what they hold; nothing is trained."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor

from widefield.metrics.cka import linear_cka as linear_cka
from widefield.metrics.collapse import FeatureState as FeatureState
from widefield.metrics.collapse import Health as Health
from widefield.metrics.collapse import health as health
from widefield.metrics.firing import firing_rates as firing_rates
from widefield.metrics.graph import Graph as Graph
from widefield.metrics.graph import count_others as count_others
from widefield.metrics.graph import neighbor_graph as neighbor_graph
from widefield.metrics.groups import Suspects as Suspects
from widefield.metrics.groups import density_clusters as density_clusters
from widefield.metrics.groups import near_duplicates as near_duplicates
from widefield.metrics.groups import neighbor_distance as neighbor_distance
from widefield.metrics.groups import outliers as outliers
from widefield.metrics.groups import suspected_labels as suspected_labels
from widefield.metrics.groups import typical as typical
from widefield.metrics.hypersphere import alignment as alignment
from widefield.metrics.hypersphere import uniformity as uniformity
from widefield.metrics.lidar import lidar as lidar
from widefield.metrics.modality import Bimodality as Bimodality
from widefield.metrics.modality import bimodality as bimodality
from widefield.metrics.modality import bimodality_coefficient as bimodality_coefficient
from widefield.metrics.neighbors import graph_overlap as graph_overlap
from widefield.metrics.neighbors import nearest_neighbors as nearest_neighbors
from widefield.metrics.neighbors import neighbor_agreement as neighbor_agreement
from widefield.metrics.neighbors import view_agreement as view_agreement
from widefield.metrics.spectrum import Spectrum as Spectrum
from widefield.metrics.spectrum import alpha_req as alpha_req
from widefield.metrics.spectrum import dead_dimensions as dead_dimensions
from widefield.metrics.spectrum import dimension_std as dimension_std
from widefield.metrics.spectrum import effective_rank as effective_rank
from widefield.metrics.spectrum import feature_std as feature_std
from widefield.metrics.spectrum import large_singular_values as large_singular_values
from widefield.metrics.spectrum import participation_ratio as participation_ratio
from widefield.metrics.spectrum import possible_rank as possible_rank
from widefield.metrics.spectrum import rankme as rankme
from widefield.metrics.spectrum import singular_values as singular_values
from widefield.metrics.spectrum import spectrum_of as spectrum_of
from widefield.metrics.spectrum import stable_rank as stable_rank
from widefield.metrics.tsne import tsne_map as tsne_map
from widefield.metrics.whitening import whitened as whitened


class Diagnostic(NamedTuple):
    """A measure of a set of features, without labels.

    Example:
        >>> import torch
        >>> DIAGNOSTICS["dead_dimensions"].measure(spectrum_of(torch.ones(9, 4)))
        4
    """

    measure: Callable[[Any], float]
    """Takes the `Spectrum` of the features, which are `spectrum.features`, float64 [n, D]; or, with
    `needs_views`, features [n, q, D] of q views of each of n examples.
    Raises `ValueError` where the number is not defined."""
    meaning: str
    """Explanation for a reader who does not know the name."""
    needs_views: bool = False
    """Whether it takes features of views."""


DIAGNOSTICS: dict[str, Diagnostic] = {
    "effective_rank": Diagnostic(
        effective_rank, "directions that the features use, each weighted by its share of the spread"
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
        "decay of the spread from direction to direction; more means that few directions dominate",
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
    "lidar": Diagnostic(
        lidar,
        "directions in which images differ more than augmented views of one image do",
        needs_views=True,
    ),
}
"""Name -> diagnostic, in the order of an audit."""


def describe(h: Tensor | Spectrum, views: Tensor | None = None) -> dict[str, float | None]:
    """Measure every entry of `DIAGNOSTICS` on features h [n, D]; None where it is not defined.

    Those that need views are measured on `views` [n, q, D], of which n may be another, and left
    out without.
    Raises `ValueError` for anything but finite features [n, D] with n >= 2.

    Example:
        >>> import torch
        >>> describe(torch.ones(9, 4))["dead_dimensions"], describe(torch.ones(9, 4))["alpha_req"]
        (4.0, None)
    """
    spectrum = spectrum_of(h)
    return {
        name: _value_or_none(entry, views if entry.needs_views else spectrum)
        for name, entry in DIAGNOSTICS.items()
        if views is not None or not entry.needs_views
    }


def _value_or_none(entry: Diagnostic, of: Spectrum | Tensor | None) -> float | None:
    try:
        return float(entry.measure(of))
    except ValueError:  # not defined for these features
        return None


__all__ = sorted(
    name
    for name, value in globals().items()
    if not (name.startswith("_") or isinstance(value, ModuleType))
    and getattr(value, "__module__", __name__).startswith(__name__)
)
