"""The per-example head: its losses, where its rows live and how they are stepped."""

from widefield.rows.adamw import LazyAdamW, LearningRates, RowState
from widefield.rows.disk import DiskStore
from widefield.rows.head import Optimizer, RowHead, Start, row_heads
from widefield.rows.initial import initial_rows
from widefield.rows.layout import Layout
from widefield.rows.lock import FolderLock
from widefield.rows.losses import batch_cross_entropy, decoupled_contrast, view_contrast
from widefield.rows.sgd import LazySGD
from widefield.rows.store import MemoryStore, choose_place, choose_store
from widefield.rows.table import RowTable, Rule, Store

__all__ = [
    "DiskStore",
    "FolderLock",
    "Layout",
    "LazyAdamW",
    "LazySGD",
    "LearningRates",
    "MemoryStore",
    "Optimizer",
    "RowHead",
    "RowState",
    "RowTable",
    "Rule",
    "Start",
    "Store",
    "batch_cross_entropy",
    "choose_place",
    "choose_store",
    "decoupled_contrast",
    "initial_rows",
    "row_heads",
    "view_contrast",
]
