"""Run a function in several processes that talk through gloo."""

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, multiprocessing

from forked import START


def in_processes(world: int, function: Callable[..., None], *args: Any) -> None:
    """Call `function(rank, *args)`, importable by name, in ranks 0..world-1; raise if one fails."""
    context = start(world, function, *args)
    while not context.join():
        pass


def start(world: int, function: Callable[..., None], *args: Any) -> multiprocessing.ProcessContext:
    """Start `in_processes` and do not wait for its processes."""
    args = (world, free_port(), function, args)
    context = multiprocessing.start_processes(
        _joined, args, nprocs=world, start_method=START, join=False
    )
    assert context is not None
    return context


def free_port() -> int:
    """Return the number of a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _joined(
    rank: int, world: int, port: int, function: Callable[..., None], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)}
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    try:
        function(rank, *args)
    finally:
        distributed.destroy_process_group()
