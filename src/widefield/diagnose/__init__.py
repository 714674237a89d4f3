"""Features, layers, encoders -> numbers and pictures of what they hold; nothing is trained."""

from widefield.diagnose.bimodality import Bimodality as Bimodality
from widefield.diagnose.bimodality import bimodality as bimodality
from widefield.diagnose.bimodality import bimodality_coefficient as bimodality_coefficient
from widefield.diagnose.cka import linear_cka as linear_cka
from widefield.diagnose.firing import firing_rates as firing_rates
from widefield.diagnose.health import Health as Health
from widefield.diagnose.health import health as health
from widefield.diagnose.hypersphere import alignment as alignment
from widefield.diagnose.hypersphere import uniformity as uniformity
from widefield.diagnose.maximise import activation_maximisation as activation_maximisation
from widefield.diagnose.maximise import colour_axes as colour_axes
from widefield.diagnose.neighbours import graph_overlap as graph_overlap
from widefield.diagnose.neighbours import nearest_neighbours as nearest_neighbours
from widefield.diagnose.spectrum import alpha_req as alpha_req
from widefield.diagnose.spectrum import dimension_std as dimension_std
from widefield.diagnose.spectrum import effective_rank as effective_rank
from widefield.diagnose.spectrum import feature_std as feature_std
from widefield.diagnose.spectrum import large_singular_values as large_singular_values
from widefield.diagnose.spectrum import participation_ratio as participation_ratio
from widefield.diagnose.spectrum import rankme as rankme
from widefield.diagnose.spectrum import singular_values as singular_values
from widefield.diagnose.tsne import tsne_map as tsne_map
