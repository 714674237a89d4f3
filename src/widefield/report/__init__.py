"""Scores and pictures of a run or an audit -> one HTML file that needs nothing else to be read."""

from widefield.report.figures import png as png
from widefield.report.pages import AuditReport as AuditReport
from widefield.report.pages import RunReport as RunReport
from widefield.report.pages import write_page as write_page
from widefield.report.parts import Bars as Bars
from widefield.report.parts import Figure as Figure
from widefield.report.parts import Gallery as Gallery
from widefield.report.parts import Lines as Lines
from widefield.report.parts import Listening as Listening
from widefield.report.parts import Places as Places
from widefield.report.parts import Recording as Recording
from widefield.report.parts import Sound as Sound
from widefield.report.parts import Table as Table
from widefield.report.parts import TaskVerdict as TaskVerdict
from widefield.report.signals import spectrogram_picture as spectrogram_picture
from widefield.report.signals import wav_file as wav_file
from widefield.report.signals import wav_samples as wav_samples
from widefield.report.signals import window_picture as window_picture

__all__ = [
    "AuditReport",
    "Bars",
    "Figure",
    "Gallery",
    "Lines",
    "Listening",
    "Places",
    "Recording",
    "RunReport",
    "Sound",
    "Table",
    "TaskVerdict",
    "png",
    "spectrogram_picture",
    "wav_file",
    "wav_samples",
    "window_picture",
    "write_page",
]
