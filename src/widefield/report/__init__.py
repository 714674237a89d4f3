"""Scores and pictures of a run or an audit -> one HTML file that needs nothing else to be read."""

from widefield.report.figures import png as png
from widefield.report.pages import AuditReport as AuditReport
from widefield.report.pages import RunReport as RunReport
from widefield.report.pages import write_page as write_page
from widefield.report.parts import Bars as Bars
from widefield.report.parts import Figure as Figure
from widefield.report.parts import Gallery as Gallery
from widefield.report.parts import Lines as Lines
from widefield.report.parts import Places as Places
from widefield.report.parts import Table as Table
from widefield.report.parts import TaskVerdict as TaskVerdict

__all__ = [
    "AuditReport",
    "Bars",
    "Figure",
    "Gallery",
    "Lines",
    "Places",
    "RunReport",
    "Table",
    "TaskVerdict",
    "png",
    "write_page",
]
