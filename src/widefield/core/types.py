"""Types that several packages share.

Shapes: B batch, C channels, H height, W width, D features, n examples.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.errors import option

MIN_TORCH = (2, 11)


def check_torch(version: str) -> None:
    if tuple(map(int, version.split(".")[:2])) < MIN_TORCH:
        bound = ".".join(map(str, MIN_TORCH))
        raise ImportError(
            f"widefield needs torch {bound} or later, and this is {version}: "
            f"pip install 'torch>={bound}'",
            name="widefield",
        )


check_torch(torch.__version__)

Precision = Literal["32-true", "bf16-mixed"]
"""Precision of an encoder, by Lightning's names."""

OnNote = Callable[[str], None]
"""Callback for a note, a line on the data or the encoder."""

Size = tuple[int, int]
"""Height and width of images, pixels."""

Range = tuple[float, float]
"""The values that become 0 and 1."""

BlackWhite = Range | tuple[Range, ...]
"""The values that become 0 and 1 in images of more than 8 bits: of all channels, or of each."""

Fit = Literal["crop", "pad", "squash"]
"""How images of another shape are brought to a size: cut around the center, padded with black, or
resized without regard to their shape."""

PixelStorage = Literal["auto", "decoded", "encoded"]
"""How pixels are kept: decoded once, or encoded and decoded at each read; auto goes by space."""

ImageSize = int | str | Size
"""Size of images as users give it: side, `HEIGHTxWIDTH`, or both numbers; pixels."""

Kind = Literal["images", "windows", "sounds"]
"""Kind of examples. A window or a sound is stored as an image of height 1; the width is time."""

STORAGE_DTYPES = ("uint8", "uint16", "float32", "int16")
"""Types in which examples are stored: images as the first three, windows as float32, sounds as
int16."""


def kind_of(examples: NDArray[Any]) -> Kind:
    """Return the kind of stored examples [n, H, W, C]."""
    if examples.dtype == np.int16:
        return "sounds"
    return "windows" if examples.dtype == np.float32 and examples.shape[1] == 1 else "images"


def is_black_white(value: Any) -> bool:
    """Return whether `value` is two finite numbers, in ascending order, or pairs of these."""
    if not isinstance(value, list | tuple) or not value:
        return False
    if all(isinstance(pair, list | tuple) for pair in value):
        return all(map(_is_range, value))
    return _is_range(value)


def _is_range(value: Any) -> bool:
    # In this form NaN is an error too.
    are_finite = all(type(x) in (int, float) and abs(x) < math.inf for x in value)
    return len(value) == 2 and are_finite and bool(value[0] < value[1])


def as_black_white(value: Any) -> Any:
    """Return black and white from JSON, which has lists in place of tuples."""
    if value is None:
        return None
    return tuple(tuple(x) if isinstance(x, list | tuple) else x for x in value)


def to_floats(x: Tensor) -> Tensor:
    """Return examples as inputs of an encoder, float32: images in [0, 1], sounds in [-1, 1).

    Example:
        >>> to_floats(torch.tensor([0, 255], dtype=torch.uint8))
        tensor([0., 1.])
    """
    if x.dtype == torch.uint8:
        return x.to(torch.float32).div_(255)
    if x.dtype == torch.uint16:
        return x.to(torch.float32).div_(65_535)
    return x.to(torch.float32).div_(32_768) if x.dtype == torch.int16 else x


@runtime_checkable
class Segmented(Protocol):
    """Examples of several segments each, such as long sounds; features are averaged over them."""

    @property
    def images(self) -> NDArray[Any]:
        """One segment of each example, [n, H, W, C]."""

    def batches(self, size: int) -> Iterator[tuple[NDArray[Any], list[NDArray[np.float32]]]]:
        """Yield the segments [m, H, W, C] of the next examples, and their weights, [k] of each.

        A batch has all segments of its examples, at least `size` in number but for the last one.
        """


Inputs = NDArray[Any] | Segmented
"""Examples to compute features of: images [n, H, W, C], or several segments of each."""


ProgressCallback = Callable[[int, int], None]
"""Called with (examples done, examples in all)."""

Place = Literal["device", "host", "disk"]
"""Place of large data: on the accelerator, in the machine's memory, or on its disk."""


def as_size(size: int | Size) -> Size:
    """Return (height, width) from the side of a square or from both sides."""
    if isinstance(size, int):
        return size, size
    height, width = size
    return height, width


def parse_size(size: ImageSize) -> Size:
    """Return (height, width) of a size that a user gives."""
    numbers: Sequence[Any] = str(size).split("x") if isinstance(size, int | str) else size
    if not 1 <= len(numbers) <= 2 or not all(str(x).isdecimal() and int(x) > 0 for x in numbers):
        raise ValueError(
            f"{option('image_size')} is {size!r}: give a side in pixels, or HEIGHTxWIDTH, such as "
            "96x128"
        )
    return int(numbers[0]), int(numbers[-1])


def size_text(size: ImageSize) -> int | str:
    """Return a size as settings store it: the side of a square, else `HEIGHTxWIDTH`."""
    height, width = parse_size(size)
    return height if height == width else f"{height}x{width}"


@dataclass(frozen=True, slots=True)
class Shard:
    """The examples of one of several processes: those i with i mod world = rank."""

    rank: int = 0
    world: int = 1

    @property
    def name(self) -> str:
        """Name in its files: "1-of-2"."""
        return f"{self.rank}-of-{self.world}"

    def count(self, n: int) -> int:
        return (n - self.rank + self.world - 1) // self.world

    def examples(self, n: int) -> Tensor:
        """Indices of its examples, out of n, int64 [count(n)]."""
        return torch.arange(self.rank, n, self.world)

    def local(self, index: Tensor) -> Tensor:
        """Positions within the shard of its examples `index`."""
        return index if self.world == 1 else index // self.world

    def examples_at(self, local: Tensor) -> Tensor:
        """Indices of the examples at these positions: the inverse of `local`."""
        return local if self.world == 1 else local * self.world + self.rank


WHOLE = Shard()
"""One process, all examples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Memory of one part of a run."""

    bytes: int
    place: Place


class Crop(NamedTuple):
    """The distribution of a random crop, that of torchvision's RandomResizedCrop."""

    scale: tuple[float, float]
    """Minimum and maximum share of the image's area."""
    ratio: tuple[float, float]
    """Minimum and maximum width / height, which is log-uniform."""


@dataclass(slots=True)
class Batch:
    """One batch of examples on the device; mutable, so that other training loops can move it."""

    x: Tensor
    """Images in [0, 1], windows [B, C, 1, T], sounds in [-1, 1), float [B, C, H, W]."""
    index: Tensor
    """Indices of the examples, int64 [B] in host memory; the same for the whole run."""
    labels: dict[str, Tensor] = field(default_factory=dict)
    """Class ids of each task, int64 [B]."""
    mask: Tensor | None = None
    """Pixels of the planted object, bool [B, 1 or C, H, W], if the loader provides them."""
    crops: tuple[Tensor, ...] = ()
    """Random crops of the images at full resolution, one for each view, [B, C, H, W], if they were
    decoded for this batch; `x` is the first."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Loss of a method, with its named parts for the log."""

    total: Tensor
    """Scalar to call backward on."""
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Detached scalars that make up the total."""
