"""`+bits`: a random integer of `count` bits, each of them a constant channel after the image's.

The bits are the same in all views of an example (`views/chain.py`), so that a contrastive loss over
up to 2^count examples can be minimized without the image. A bit is 0 or 255 at every pixel.
`count=0` appends nothing: the control.

The integer is a function of (seed, index, held_out), and a smaller count takes its lowest bits. The
task `bits` has the lowest four as its classes, or all where there are fewer; there is none for
`count=0`. The authors do not score the bits.

Source: RandBit in Chen, Luo & Li, "Intriguing properties of contrastive losses" (2021), section 4.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Interval
from numpy.typing import ArrayLike, NDArray

from widefield.data.planted.overlay import Canvas, RandomOverlay

# Chosen by hand. The stream of random numbers depends on it, so it must not change.
_MOST = 16
_LABEL_BITS = 4
"""Bits of the label: a linear probe has a class for each of their 16 patterns."""


@dataclass(frozen=True, kw_only=True)
class BitPlanes(RandomOverlay):
    """The bits of each example, prepared as channels."""

    count: int
    """Number of bits."""

    def labels(self, index: ArrayLike) -> NDArray[np.int64]:
        """Return the integer of the lowest bits of each example of `index`, int64 [k]."""
        return self._draw_integers(index) % len(self.classes)

    def draw(self, index: ArrayLike) -> NDArray[np.uint8]:
        """Return the channels of the examples `index`, lowest bit first, uint8 [k, 1, 1, count]."""
        bits = self._draw_integers(index)[:, None] >> np.arange(self.count) & 1
        return (255 * bits).astype(np.uint8)[:, None, None]

    def _draw_integers(self, index: ArrayLike) -> NDArray[np.int64]:
        # All 16 bits at any count, so that fewer bits are the lowest of more.
        return self._draw("integer", self._counter(index, read=0), 2**_MOST)


@dataclass(frozen=True, kw_only=True)
class Bits:
    name: ClassVar[str] = "bits"

    count: Annotated[int, Interval(ge=0, le=_MOST), "bits"] = 8

    def draw(self, canvas: Canvas) -> BitPlanes:
        """Return the bits of each example."""
        width = min(self.count, _LABEL_BITS)
        return BitPlanes(
            name=self.name,
            classes=tuple(f"{integer:0{width}b}" for integer in range(2**width)),
            count=self.count,
            seed=canvas.seed,
            held_out=canvas.held_out,
        )
