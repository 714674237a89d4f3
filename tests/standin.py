"""A device that keeps its tensors in host memory, and notes what it is asked to do.

Its tensors report a device of their own. An operation of tensors on both sides fails, as on a GPU;
one that a GPU's caller has to wait for is noted with the line that asked for it. Of torch's device
types `lazy` serves, because the backward pass of its tensors needs no driver.
"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("lazy")

WAITS = {
    "_linalg_check_errors",
    "_linalg_eigh",
    "_linalg_svd",
    "_local_scalar_dense",
    "_unique2",
    "bincount",
    "equal",
    "is_nonzero",
    "masked_select",
    "nonzero",
    "repeat_interleave",
    "unique_consecutive",
    "unique_dim",
}
"""Operations whose result or its size the caller needs, so it waits for the device."""

NO_KERNELS = {"detach", "empty", "empty_like", "empty_strided", "lift_fresh", "new_empty"}


class MixedDevices(Exception):
    """An operation has tensors in host memory and on the device."""


class OnDevice(Tensor):
    """A tensor on the device; `host` is where its numbers are."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> "OnDevice":
        kept = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=DEVICE,
        )
        kept.host = host
        return kept

    def tolist(self) -> Any:
        """Return its numbers, which torch's own does not for subclasses."""
        return self.cpu().tolist()

    def record_stream(self, stream: Any) -> None:
        """Do nothing: no memory is reused."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"{func} outside of the watch")


class Watch(TorchDispatchMode):
    """Computes what is asked of the device; `kernels` and `waits` are what it was asked since."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[str] = []
        self.waits: list[str] = []
        self.copies: list[str] = []
        self._pinned: dict[int, Tensor] = {}

    def clear(self) -> None:
        """Forget what it was asked so far."""
        for notes in (self.kernels, self.waits, self.copies):
            notes.clear()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs, name = dict(kwargs or {}), func._schema.name.removeprefix("aten::")
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        here = any(isinstance(x, OnDevice) for x in given)
        stays = here
        if kwargs.get("device") is not None:
            stays = torch.device(kwargs["device"]).type == DEVICE.type
            kwargs["device"] = "cpu"
        if name == "is_pinned":
            return self._is_pinned(args[0])
        if name == "_pin_memory":
            return self.pin(args[0].clone())
        if name in ("_to_copy", "copy_"):
            self._note_copy(name, args, kwargs, stays)
        elif here:
            self._check(name, func, args, given)
        result = func(*tree_map(_host, args), **tree_map(_host, kwargs))
        if (here or stays) and not func.is_view and name not in NO_KERNELS:
            self.kernels.append(name)
        if name == "copy_":
            return args[0]
        return _kept(args, kwargs, result) if stays else result

    def _check(self, name: str, func: Any, args: tuple[Any, ...], given: list[Tensor]) -> None:
        """Refuse mixed devices, except numbers; note what a GPU's caller waits for."""
        foreign = [x for x in given if not isinstance(x, OnDevice) and x.dim()]
        is_index = name in ("index", "index_put", "index_put_", "_index_put_impl_")
        if foreign and not (is_index and isinstance(args[0], OnDevice)):
            raise MixedDevices(
                f"{func} of tensors on {[str(x.device) for x in given]}: {_caller()}"
            )
        masked = is_index and any(
            x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]
        )
        fills = name.startswith("index_put") and args[2].numel() == 1
        if name in WAITS or foreign or (masked and not fills):
            self.waits.append(f"{name} at {_caller()}")

    def _note_copy(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], stays: bool
    ) -> None:
        """Note a copy between host and device, which waits unless the host's memory is pinned."""
        source, target = args[0], None
        asynchronous = kwargs.get("non_blocking", False)
        if name == "copy_":
            target, source, asynchronous = *args[:2], len(args) > 2 and args[2]
            stays = isinstance(target, OnDevice)
        if isinstance(source, OnDevice) == stays:
            return
        on_host = source if stays else target
        copy = f"copy to the {'device' if stays else 'host'} at {_caller()}"
        self.copies.append(copy)
        if not (asynchronous and on_host is not None and self._is_pinned(on_host)):
            self.waits.append(copy)

    def pin(self, x: Tensor) -> Tensor:
        """Return `x` as page-locked memory."""
        self._pinned[x.untyped_storage().data_ptr()] = x  # kept, so that no address comes again
        return x

    def _is_pinned(self, x: Tensor) -> bool:
        return not isinstance(x, OnDevice) and x.untyped_storage().data_ptr() in self._pinned


def _host(x: Any) -> Any:
    return x.host if isinstance(x, OnDevice) else x


def _kept(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """Return the result on the device; what the operation changed is the tensor it was given."""
    changed = {id(x.host): x for x in tree_leaves((args, kwargs)) if isinstance(x, OnDevice)}

    def keep(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return changed[id(x)] if id(x) in changed else OnDevice(x)

    return tree_map(keep, result)


def _caller() -> str:
    """Return the innermost line of widefield, or of a test, that is being run."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        _, package, name = frame.f_code.co_filename.rpartition("/src/widefield/")
        is_test = "/tests/" in name and not name.endswith("/standin.py")
        if is_test or (package and name != "core/devices.py"):
            return f"{name.rpartition('/tests/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "torch"


class _Generator(torch.Generator):
    """A generator of the host also for the device."""

    def __new__(cls, device: object = "cpu") -> Self:
        return super().__new__(cls)


class _Autocast(torch.autocast):
    """Autocast, off on the device."""

    def __init__(self, kind: str, *args: Any, **kwargs: Any) -> None:
        if kind == DEVICE.type:
            super().__init__("cpu", enabled=False)
        else:
            super().__init__(kind, *args, **kwargs)


class _Stream:
    """A stream, or an event, of a device that has done everything at once."""

    def __init__(self, device: object = None) -> None: ...

    def wait_stream(self, other: "_Stream") -> None: ...

    def record_event(self) -> "_Stream":
        return self

    def synchronize(self) -> None: ...


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """The device, with the parts of torch that only drivers of real ones have."""
    import_module(
        "torch.utils._device"
    )._device_constructors()  # torch keeps those of its first use
    seen, tensor, empty = Watch(), torch.tensor, torch.empty
    optimizer = import_module("torch.optim.optimizer")
    fused = "_get_fused_kernels_supported_devices"
    supported = [*getattr(optimizer, fused)(), DEVICE.type]

    def new_tensor(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        made = tensor(*args, **kwargs)  # torch's own copy is not seen by a dispatch mode
        return made if device is None else made.to(device)

    def new_empty(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Tensor:
        made = empty(*args, **kwargs)
        return seen.pin(made) if pin_memory else made

    for owner, name, new in (
        (optimizer, fused, lambda: supported),
        # Assignment to `data` would leave the numbers as they were.
        (torch.__future__, "_swap_module_params_on_conversion", True),
        (torch, "Generator", _Generator),
        (torch, "autocast", _Autocast),
        (torch, "inference_mode", torch.no_grad),  # of subclasses it knows no views
        (torch, "tensor", new_tensor),
        (torch, "empty", new_empty),
        (torch, DEVICE.type, SimpleNamespace()),
        (torch.cuda, "Stream", _Stream),
        (torch.cuda, "stream", nullcontext),
        (torch.cuda, "current_stream", _Stream),
    ):
        monkeypatch.setattr(owner, name, new, raising=name != DEVICE.type)
    with seen:
        yield seen
