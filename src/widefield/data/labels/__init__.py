"""Labels: columns of a table, arrays and folders -> classes, numbers, or several labels a row.

What is neither is a ValueError of one line, which names the column or key.
"""

from widefield.data.labels.read import Labels as Labels
from widefield.data.labels.read import LabelTable as LabelTable
from widefield.data.labels.read import labeled as labeled
from widefield.data.labels.read import read_labels as read_labels
