"""Scores and images of a run or an audit -> one self-contained HTML file."""

from typing import TYPE_CHECKING

from widefield.core.lazy import lazy_exports

if TYPE_CHECKING:
    from widefield.report.figures import png as png
    from widefield.report.pages import AuditReport as AuditReport
    from widefield.report.pages import RunReport as RunReport
    from widefield.report.pages import write_page as write_page
    from widefield.report.parts import AccuracyTable as AccuracyTable
    from widefield.report.parts import AudioRows as AudioRows
    from widefield.report.parts import Bars as Bars
    from widefield.report.parts import Figure as Figure
    from widefield.report.parts import Gallery as Gallery
    from widefield.report.parts import HeatMap as HeatMap
    from widefield.report.parts import Lines as Lines
    from widefield.report.parts import Recording as Recording
    from widefield.report.parts import ScatterPlot as ScatterPlot
    from widefield.report.parts import Sound as Sound
    from widefield.report.parts import TaskVerdict as TaskVerdict
    from widefield.report.sheet import contact_sheet as contact_sheet
    from widefield.report.signals import decode_wav as decode_wav
    from widefield.report.signals import encode_wav as encode_wav
    from widefield.report.signals import spectrogram_image as spectrogram_image
    from widefield.report.signals import window_image as window_image

__getattr__, __dir__ = lazy_exports(__name__)
