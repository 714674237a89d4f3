"""Run a function in two processes that talk through gloo."""

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed, multiprocessing

from forked import START


def in_two_processes(function: Callable[..., None], *args: Any) -> None:
    """Call `function(rank, *args)`, importable by name, in ranks 0 and 1; raises if one fails."""
    args = (free_port(), function, args)
    multiprocessing.start_processes(_joined, args, nprocs=2, start_method=START)


def free_port() -> int:
    """Return the number of a port that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _joined(rank: int, port: int, function: Callable[..., None], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    try:
        function(rank, *args)
    finally:
        distributed.destroy_process_group()
