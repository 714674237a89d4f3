"""How a row and its optimizer state are kept: in which types, and as which words of a record."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Moments = Literal["float32", "bf16"]
SecondMoment = Literal["element", "row", "none"]

_MIX = -0x61C88647  # 2^32 over the golden ratio: its multiples differ in their upper bits
STEP_WORDS = 2  # a record begins with the step it is at, an int64


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What is kept of a row of width m: the row itself, always float32, and its two moments.

    A storage computes nothing: it hands out float32 and rounds what it is given, the first moment
    to nearest and the second one at random: to nearest, 0.999 times a bf16 is the same bf16 again,
    and a row that is seen at every step or two would never forget an old gradient.

    Example:
        >>> [Layout(moments=m, second_moment=v).row_bytes(128)
        ...  for m in ("float32", "bf16") for v in ("element", "row")]
        [1536, 1028, 1024, 772]
    """

    moments: Moments = "float32"
    """Type of the moments; bf16 halves them."""
    second_moment: SecondMoment = "element"
    """One for each element of the row, one float32 for the whole row, or none, for SGD."""

    @property
    def name(self) -> str:
        """Name of the layout, 16 letters at most."""
        return f"{self.moments}/{self.second_moment}"

    @property
    def m_dtype(self) -> torch.dtype:
        """Type of the first moment."""
        return torch.bfloat16 if self.moments == "bf16" else torch.float32

    @property
    def v_dtype(self) -> torch.dtype:
        """Type of the second moment."""
        return self.m_dtype if self.second_moment == "element" else torch.float32

    def v_width(self, dim: int) -> int:
        """Return the number of second moments of a row of width `dim`."""
        return {"element": dim, "row": 1, "none": 0}[self.second_moment]

    def row_bytes(self, dim: int) -> int:
        """Return the bytes of a row of width `dim` with its moments."""
        return 4 * dim + self.m_dtype.itemsize * dim + self.v_dtype.itemsize * self.v_width(dim)

    def words(self, dim: int) -> int:
        """Return the 32-bit words of a record, an even number."""
        return _even(STEP_WORDS + sum(self._widths(dim)))

    def narrowed(self, row: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return both moments, float32 as the row is, in the types in which they are kept."""
        if self.v_dtype == torch.float32:
            return m.to(self.m_dtype), v
        # The lower bits of what has just moved: the same again in a run that is resumed.
        noise = row.view(torch.int32) ^ m.view(torch.int32)
        return m.to(self.m_dtype), _rounded_at_random(v, noise)

    def pack(self, row: Tensor, m: Tensor, v: Tensor) -> Tensor:
        """Return records int32 [b, words] of rows and moments, on their device; the step is 0."""
        b, dim = row.shape
        step = torch.zeros(b, STEP_WORDS, dtype=torch.int32, device=row.device)
        parts = [step, *map(_as_words, (row.float(), *self.narrowed(row, m, v)))]
        if self.words(dim) > STEP_WORDS + sum(self._widths(dim)):
            parts.append(step[:, :1])
        return torch.cat(parts, dim=1)

    def unpack(self, records: Tensor, dim: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return row [b, dim], m [b, dim] and v [b, dim, 1 or 0], float32, on the records' device.

        What is float32 in the record is not copied.
        """
        widths = self._widths(dim)
        row, m, v = torch.split(records[:, STEP_WORDS : STEP_WORDS + sum(widths)], widths, dim=1)
        return (
            row.view(torch.float32),
            m.view(self.m_dtype)[:, :dim].float(),
            v.view(self.v_dtype)[:, : self.v_width(dim)].float(),
        )

    def _widths(self, dim: int) -> list[int]:
        """Return the words of row, m and v."""
        m, v = self.m_dtype.itemsize * dim, self.v_dtype.itemsize * self.v_width(dim)
        return [dim, -(-m // 4), -(-v // 4)]


FULL = Layout()
"""Every moment in float32."""


def _rounded_at_random(v: Tensor, noise: Tensor) -> Tensor:
    """Return float32 v >= 0 as one of its two neighbors in bf16, drawn by the bits of `noise`.

    The chance of the upper one is how far v is on the way to it, so that v is what is expected.
    """
    dither = (noise * _MIX) >> 16 & 0xFFFF
    return ((v.view(torch.int32) + dither) & ~0xFFFF).view(torch.float32).to(torch.bfloat16)


def _as_words(x: Tensor) -> Tensor:
    if x.dtype == torch.bfloat16:
        x = F.pad(x, (0, x.shape[1] % 2)).contiguous()
    return x.view(torch.int32)


def _even(count: int) -> int:
    return count + count % 2
