"""Scores and pictures of a run -> one HTML file that needs nothing else to be read."""

from widefield.report.page import Curve as Curve
from widefield.report.page import Report as Report
from widefield.report.page import Table as Table
