"""Metrics of features, layers and encoders; nothing is trained."""

from typing import TYPE_CHECKING

from widefield.core.lazy import lazy_exports

if TYPE_CHECKING:
    from widefield.metrics.agreement import neighbor_agreement as neighbor_agreement
    from widefield.metrics.agreement import view_agreement as view_agreement
    from widefield.metrics.cka import linear_cka as linear_cka
    from widefield.metrics.collapse import FeatureState as FeatureState
    from widefield.metrics.collapse import Health as Health
    from widefield.metrics.collapse import health as health
    from widefield.metrics.diagnostics import DIAGNOSTICS as DIAGNOSTICS
    from widefield.metrics.diagnostics import Diagnostic as Diagnostic
    from widefield.metrics.diagnostics import describe as describe
    from widefield.metrics.firing import firing_rates as firing_rates
    from widefield.metrics.graph import Graph as Graph
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
    from widefield.metrics.maximize import activation_maximization as activation_maximization
    from widefield.metrics.maximize import color_axes as color_axes
    from widefield.metrics.modality import Bimodality as Bimodality
    from widefield.metrics.modality import bimodality as bimodality
    from widefield.metrics.modality import bimodality_coefficient as bimodality_coefficient
    from widefield.metrics.neighbors import graph_overlap as graph_overlap
    from widefield.metrics.neighbors import nearest_neighbors as nearest_neighbors
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
    from widefield.metrics.spectrum import stable_rank as stable_rank
    from widefield.metrics.tsne import tsne_map as tsne_map
    from widefield.metrics.whitening import whitened as whitened

__getattr__, __dir__ = lazy_exports(__name__)
