"""Published peak values of devices that a run can be planned for without having one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedDevice:
    """Peak values of a device by its maker, which no program reaches."""

    flops: float
    """bfloat16 operations a second with float32 sums, without sparsity."""
    bandwidth: float
    """Bytes a second from and to its memory."""
    memory: int
    """Bytes of its memory."""


PUBLISHED_DEVICES = {
    "a100": PublishedDevice(312e12, 2.039e12, 80 * 10**9),
    "h100": PublishedDevice(989e12, 3.35e12, 80 * 10**9),
    "h200": PublishedDevice(989e12, 4.8e12, 141 * 10**9),
    "l4": PublishedDevice(121e12, 0.3e12, 24 * 10**9),
}
"""NVIDIA's data sheets: A100 80 GB SXM, H100 SXM, H200 SXM, L4."""
