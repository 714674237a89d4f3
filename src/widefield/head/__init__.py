"""The per-example head: its losses, where its rows live and how they are stepped."""

from widefield.head.initial import initial_rows
from widefield.head.lazy_adamw import LazyAdamW, LearningRates, RowState
from widefield.head.lazy_sgd import LazySGD
from widefield.head.losses import batch_cross_entropy, decoupled_contrast, view_contrast
from widefield.head.per_example_head import Optimizer, PerExampleHead, Start, per_example_heads
from widefield.head.storage.disk import DiskStore
from widefield.head.storage.layout import Layout
from widefield.head.storage.lock import FolderLock
from widefield.head.storage.memory import MemoryStore, choose_place, choose_store
from widefield.head.table import RowTable, Rule, Store

__all__ = [
    "DiskStore",
    "FolderLock",
    "Layout",
    "LazyAdamW",
    "LazySGD",
    "LearningRates",
    "MemoryStore",
    "Optimizer",
    "PerExampleHead",
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
    "per_example_heads",
    "view_contrast",
]
