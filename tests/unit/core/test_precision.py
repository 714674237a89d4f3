"""Losses in full precision, however their tensors are given."""

from typing import Any

import pytest
import torch
from torch import Tensor

from widefield.core.precision import full_precision


@full_precision
def product(a: Tensor, b: Tensor, *, times: float = 1.0) -> Tensor:
    return times * (a @ b.T)


def halves() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(6, 4, generator=generator).bfloat16() for _ in range(2)]


@pytest.mark.parametrize("by_keyword", [(), ("b",), ("a", "b")])
def test_tensors_are_raised_wherever_they_stand(by_keyword: tuple[str, ...]) -> None:
    a, b = halves()
    named: dict[str, Any] = {"a": a, "b": b}
    args = [named.pop(name) for name in ("a", "b") if name not in by_keyword]
    with torch.autocast("cpu", torch.bfloat16):
        result = product(*args, **named, times=2.0)
    assert result.dtype == torch.float32
    assert torch.equal(result, 2 * (a.float() @ b.float().T))


def test_double_precision_stays() -> None:
    a, b = (x.double() for x in halves())
    assert product(a=a, b=b).dtype == torch.float64


def test_autocast_is_off_for_every_device_of_a_tensor() -> None:
    """An index in host memory that comes first does not leave the other device in half."""

    @full_precision
    def states(index: Tensor, z: Tensor) -> list[bool]:
        return [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")]

    class OnGpu(torch.Tensor):
        device = torch.device("cuda")

    z = torch.zeros(2).as_subclass(OnGpu)  # type: ignore[no-untyped-call]
    with torch.autocast("cpu", torch.bfloat16):
        torch.set_autocast_enabled("cuda", True)
        try:
            assert states(torch.zeros(2), z) == [False, False]
        finally:
            torch.set_autocast_enabled("cuda", False)
