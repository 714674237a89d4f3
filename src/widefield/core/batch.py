"""Checks of arguments at the public boundary: type, shape and range, with the remedy in one line.

Shapes and types are checked on every device. Values of tensors are read on the CPU only, so that no
check waits for an accelerator, and not at all where torch traces the code.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar

import torch
from annotated_types import Ge
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from widefield.core.precision import at_least_float32
from widefield.core.validation import check

P = ParamSpec("P")
T = TypeVar("T")

# Chosen by hand: values of mean 0 and deviation 1 have a distance of about 0.5 from [0, 1].
MAX_DISTANCE = 0.1
"""Mean distance from their range up to which inputs are accepted: views may leave it a little."""

Positive = Annotated[int, Ge(1)]
"""A whole number of at least 1."""


@dataclass(frozen=True)
class Shape:
    """Shape and type of a tensor argument; a letter is one size in all arguments of a call."""

    sizes: str
    """Letters, such as "b m": b examples, m numbers each."""
    kind: str = "floats"
    """`floats`, `int64` or `bool`."""
    below: str = ""
    """The size that whole numbers are below; they are at least 0."""
    min_examples: int = 1


Rows = Annotated[Tensor, Shape("b m")]
"""Floats [b, m]: a row for each example."""
ContrastedRows = Annotated[Tensor, Shape("b m", min_examples=2)]
"""Floats [b, m] of two examples or more."""
HeadRows = Annotated[Tensor, Shape("n m")]
"""Floats [n, m]: the rows of a head."""
Targets = Annotated[Tensor, Shape("b", kind="int64", below="n")]
"""Whole numbers [b] in 0..n-1, int64."""


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate `function` to check its arguments against their `Annotated` hints.

    A tensor has a `Shape`, a number limits of `annotated_types`. A number that is a tensor, such as
    a temperature that is trained, is not checked.
    """
    names, hints = inspect.signature(function).parameters, inspect.get_annotations(function)
    parts = {n: h.__metadata__ for n, h in hints.items() if hasattr(h, "__metadata__")}
    shapes = {n: part for n, (part, *_) in parts.items() if isinstance(part, Shape)}
    numbers = {name: hints[name] for name in parts if name not in shapes}

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if not torch.compiler.is_compiling():
            provided = dict(zip(names, args, strict=False)) | kwargs
            for name, hint in numbers.items():
                if name in provided:
                    check_number(name, hint, provided[name])
            if shapes:
                check_tensors(provided, shapes)
        return function(*args, **kwargs)

    return run


def check_number(name: str, hint: Any, value: Any) -> None:
    """Check a number against its hint, without waiting for one on a device."""
    if type(value) in (int, float):
        _check_once(name, hint, value)
    elif not isinstance(value, Tensor):
        check(name, hint, value)


@functools.lru_cache(maxsize=1024, typed=True)  # a step has the numbers of the step before
def _check_once(name: str, hint: Any, value: float) -> None:
    check(name, hint, value)


def check_tensors(
    provided: Mapping[str, Any], shapes: Mapping[str, Shape], sizes: Mapping[str, int] | None = None
) -> None:
    """Check the tensors of one call; `sizes` are letters that have a size already.

    Rows [., m] must be of one type, half precision counted as float32, and on one device.
    """
    first: dict[str, tuple[str, Tensor]] = {}  # letter -> name and tensor that have it
    rows: tuple[str, Tensor] | None = None
    known = dict(sizes or {})
    for name, shape in shapes.items():
        x = provided.get(name)
        if x is None:  # missing arguments are for Python to name
            continue
        letters = shape.sizes.split()
        _check_tensor(name, x, shape, letters)
        for letter, size in zip(letters, x.shape, strict=True):
            if known.setdefault(letter, size) != size:
                raise _size_error(name, x, shape, letter, known[letter], first.get(letter))
            first.setdefault(letter, (name, x))
        if letters[0] == "b" and x.shape[0] < shape.min_examples:
            raise ValueError(
                f"the loss contrasts examples, and got a batch of {x.shape[0]}: give "
                f"{shape.min_examples} or more examples, such as by DataLoader(drop_last=True)"
            )
        if letters[-1] == "m":
            rows = rows or (name, x)
            _check_compatible(*rows, name, x)
        if shape.below in known and _can_read(x):
            check_range(name, x, known[shape.below])


def _check_tensor(name: str, x: Any, shape: Shape, letters: list[str]) -> None:
    wanted = f"[{', '.join(letters)}]"
    if not isinstance(x, Tensor):
        raise not_a_tensor(name, x, f"{shape.kind} {wanted}")
    if x.ndim != len(letters):
        raise ValueError(f"{name} has shape {list(x.shape)}: give {shape.kind} {wanted}")
    if not (x.is_floating_point() if shape.kind == "floats" else str(x.dtype)[6:] == shape.kind):
        raise ValueError(f"{name} has dtype {x.dtype}: give {shape.kind} {wanted}")
    if 0 in x.shape[1:] or len(x) < min(1, shape.min_examples):
        raise ValueError(
            f"{name} is empty, of shape {list(x.shape)}: give {shape.kind} {wanted} of one example "
            "or more"
        )


def _check_compatible(first_name: str, first: Tensor, name: str, x: Tensor) -> None:
    if at_least_float32(first).dtype != at_least_float32(x).dtype:
        raise ValueError(
            f"{first_name} is {first.dtype} and {name} is {x.dtype}: give both in one precision, "
            f"such as {name}.to({first_name}.dtype)"
        )
    if first.device != x.device:
        raise ValueError(
            f"{first_name} is on {first.device} and {name} on {x.device}: move both to one device"
        )


def _size_error(
    name: str, x: Tensor, shape: Shape, letter: str, size: int, first: tuple[str, Tensor] | None
) -> ValueError:
    if first is None:
        return ValueError(
            f"{name} has shape {list(x.shape)}: give [{', '.join(shape.sizes.split())}] with "
            f"{letter} = {size}"
        )
    expected = "a row of each example" if letter == "b" else f"one size {letter}"
    return ValueError(
        f"{first[0]} and {name} have shapes {list(first[1].shape)} and {list(x.shape)}: give "
        f"{expected} in both"
    )


def check_index(index: Any, count: int, examples: int | None = None) -> None:
    """Check the indices of a batch of `count` examples, out of `examples` if that is known."""
    if not isinstance(index, Tensor):
        raise not_a_tensor("index", index, "integers [b]")
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise ValueError(
            f"the index is of {index.dtype}: give an integer for each feature of the batch"
        )
    if index.shape != (count,):
        raise ValueError(f"{count} features came with an index of shape {tuple(index.shape)}")
    if count and _can_read(index):
        check_range("index", index, examples)


def check_range(name: str, x: Tensor, size: int | None) -> None:
    """Check that whole numbers, in host memory, are in [0, size); without `size` at least 0."""
    low, high = map(int, x.long().aminmax())
    if low < 0 or (size is not None and high >= size):
        raise ValueError(
            f"{name} {low} to {high} is not in [0, {'n' if size is None else size}): number the "
            "examples from 0, and make the head for all of them"
        )


def check_views(views: Any, count: int) -> None:
    """Check a list of `count` views of one batch, [B, ...] each."""
    if not isinstance(views, list | tuple) or len(views) != count:
        got = len(views) if isinstance(views, list | tuple) else f"a {type(views).__name__}"
        raise ValueError(
            f"views must be a list of {count}, one tensor [B, ...] each, and got {got}: give "
            "view_count views"
        )
    for view in views:
        if not isinstance(view, Tensor):
            raise not_a_tensor("a view", view, "[B, ...]")
        if view.ndim == 0 or view.numel() == 0:
            raise ValueError(f"a view is empty, of shape {list(view.shape)}: give [B, ...]")
        if view.shape != views[0].shape:
            raise ValueError(
                f"views have shapes {list(views[0].shape)} and {list(view.shape)}: give each "
                "example in all of them, in one order"
            )


def check_examples(
    x: Any, *, channels: int | None = None, limits: tuple[float, float] | None = None
) -> None:
    """Check a batch of images, windows or sounds, floats [B, C, H, W].

    With limits, their values lie in that range but for a mean distance of `MAX_DISTANCE`.
    """
    if not isinstance(x, Tensor):
        raise not_a_tensor("the batch", x, "floats [B, C, H, W]")
    shape = list(x.shape)
    if x.ndim != 4:
        raise ValueError(
            f"the examples have shape {shape}: give a batch [B, C, H, W]"
            f"{', as x[None] of one' if x.ndim == 3 else ''}"
        )
    if not x.is_floating_point():
        raise ValueError(
            f"images have dtype {x.dtype}: give floats in [0, 1], x / 255 of bytes, and sounds in "
            "[-1, 1), x / 32768 of int16"
        )
    if x.numel() == 0:
        raise ValueError(f"the batch is empty, of shape {shape}: give one example or more")
    few = _MAX_CHANNELS if channels is None else channels
    is_last = shape[3] == few if channels else shape[3] <= few < _MIN_SIDE <= shape[2]
    if shape[1] != channels and is_last:
        raise ValueError(
            f"the examples have shape {shape}, channels last: give [B, C, H, W], as "
            "x.permute(0, 3, 1, 2)"
        )
    if channels is not None and shape[1] != channels:
        raise ValueError(
            f"the examples have shape {shape}, {shape[1]} channels, and {channels} are needed: "
            f"give [B, {channels}, H, W]"
        )
    if limits is not None and _can_read(x):
        _check_values(x.detach(), *limits)


# Chosen by hand: color with alpha has four channels.
_MAX_CHANNELS, _MIN_SIDE = 4, 8
"""A last axis of at most 4, after one of at least 8, is that of channels."""


def _check_values(x: Tensor, low: float, high: float) -> None:
    smallest, largest = map(float, x.aminmax())
    if smallest >= low and largest <= high:
        return
    if float((x - x.clamp(low, high)).abs().mean()) > MAX_DISTANCE:
        raise ValueError(
            f"the values lie between {smallest:.4g} and {largest:.4g}: give images in [0, 1], "
            "x / 255 of bytes, and sounds in [-1, 1), x / 32768 of int16, not normalized otherwise"
        )


def not_a_tensor(name: str, x: object, wanted: str) -> ValueError:
    return ValueError(f"{name} is a {type(x).__name__}: give a tensor {wanted}, by torch.as_tensor")


def _can_read(x: Tensor) -> bool:
    """Return whether reading values neither waits for a device nor breaks a trace."""
    is_traced = torch.compiler.is_compiling() or is_functorch_wrapped_tensor(x)
    return x.device.type == "cpu" and not is_traced
