"""Scores and pictures of a run -> one HTML file that needs nothing else to be read."""

from widefield.report.page import Curve as Curve
from widefield.report.page import Report as Report
from widefield.report.page import Table as Table
from widefield.report.parts import Bars as Bars
from widefield.report.parts import Figure as Figure
from widefield.report.parts import Gallery as Gallery
from widefield.report.parts import Lines as Lines
from widefield.report.parts import Places as Places
from widefield.report.parts import Verdict as Verdict
