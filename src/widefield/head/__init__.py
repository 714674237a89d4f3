"""The per-example head: losses, optimizers of its rows, and their storage."""

from widefield.head.history import StepHistory
from widefield.head.lazy_adamw import LazyAdamW
from widefield.head.lazy_optimizer import LazyOptimizer, Update
from widefield.head.lazy_sgd import LazySGD
from widefield.head.losses import batch_cross_entropy, decoupled_contrast, view_contrast
from widefield.head.per_example_head import Init, PerExampleHead
from widefield.head.storage.base import RowState, Storage, initial_rows
from widefield.head.storage.choose import choose_storage, select_device_kind
from widefield.head.storage.disk import DiskStorage
from widefield.head.storage.layout import Layout
from widefield.head.storage.lock import FolderLock
from widefield.head.storage.memory import MemoryStorage

__all__ = [
    "DiskStorage",
    "FolderLock",
    "Init",
    "Layout",
    "LazyAdamW",
    "LazyOptimizer",
    "LazySGD",
    "MemoryStorage",
    "PerExampleHead",
    "RowState",
    "StepHistory",
    "Storage",
    "Update",
    "batch_cross_entropy",
    "choose_storage",
    "decoupled_contrast",
    "initial_rows",
    "select_device_kind",
    "view_contrast",
]
