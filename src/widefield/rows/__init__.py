"""The per-example head: where its rows live and how they are stepped."""

from widefield.rows.adamw import LazyAdamW, RowState
from widefield.rows.disk import DiskStore
from widefield.rows.head import RowHead, Rule, Store
from widefield.rows.initial import initial_rows
from widefield.rows.layout import Layout
from widefield.rows.lock import FolderLock
from widefield.rows.store import MemoryStore, Place, choose_place, choose_store

__all__ = [
    "DiskStore",
    "FolderLock",
    "Layout",
    "LazyAdamW",
    "MemoryStore",
    "Place",
    "RowHead",
    "RowState",
    "Rule",
    "Store",
    "choose_place",
    "choose_store",
    "initial_rows",
]
