"""Probes: frozen features and labels -> outcomes on test examples, their floors and verdicts."""

from widefield.probes.features import Pixels as Pixels
from widefield.probes.features import extract as extract
from widefield.probes.features import pixels as pixels
from widefield.probes.knn import knn as knn
from widefield.probes.linear import LinearProbe as LinearProbe
from widefield.probes.linear import fit_linear as fit_linear
from widefield.probes.outcome import Outcome as Outcome
from widefield.probes.score import score as score
