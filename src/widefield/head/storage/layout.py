"""Format of a stored row and its optimizer state."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Moments = Literal["float32", "bf16"]
SecondMoment = Literal["element", "row", "none"]

_MIX = -0x61C88647  # 2^32 over the golden ratio: its multiples differ in their upper bits
# A record starts with its step, so that a journal knows at a glance whether it has the old one.
STEP_WORDS = 2  # an int64


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """Types and sizes of a row of width m, which is float32, and of its two moments.

    A storage returns float32. It rounds the first moment to nearest and the second one at random,
    because to nearest 0.999 times a bf16 is the same bf16, and frequent rows would never forget an
    old gradient.

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
        return torch.bfloat16 if self.moments == "bf16" else torch.float32

    @property
    def v_dtype(self) -> torch.dtype:
        return self.m_dtype if self.second_moment == "element" else torch.float32

    def v_width(self, dim: int) -> int:
        """Return the number of second moments of a row of width `dim`."""
        return {"element": dim, "row": 1, "none": 0}[self.second_moment]

    def row_bytes(self, dim: int) -> int:
        """Return the bytes of a row of width `dim` with its moments."""
        return 4 * dim + self.m_dtype.itemsize * dim + self.v_dtype.itemsize * self.v_width(dim)

    def words(self, dim: int) -> int:
        """Return the 32-bit words of a record, an even number."""
        count = STEP_WORDS + sum(self._widths(dim))
        # Even, so that the step of every record is aligned and the journal can sum 64-bit words.
        return count + count % 2

    def cast_moments(self, row: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return both moments, given in float32, in the types of the storage."""
        if self.v_dtype == torch.float32:
            return m.to(self.m_dtype), v
        # Random bits from the values themselves, so that a resumed run is the same.
        noise = row.view(torch.int32) ^ m.view(torch.int32)
        return m.to(self.m_dtype), _rounded_at_random(v, noise)

    def pack(self, row: Tensor, m: Tensor, v: Tensor) -> Tensor:
        """Return records int32 [b, words] of rows and moments, on their device; the step is 0."""
        b, dim = row.shape
        step = torch.zeros(b, STEP_WORDS, dtype=torch.int32, device=row.device)
        parts = [step, *map(_as_words, (row.float(), *self.cast_moments(row, m, v)))]
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
    """Round float32 v >= 0 to one of its two neighbors in bf16 by the random bits of `noise`.

    The expected value is v.
    """
    noise = (noise * _MIX) >> 16 & 0xFFFF
    return ((v.view(torch.int32) + noise) & ~0xFFFF).view(torch.float32).to(torch.bfloat16)


def _as_words(x: Tensor) -> Tensor:
    if x.dtype == torch.bfloat16:
        x = F.pad(x, (0, x.shape[1] % 2)).contiguous()
    return x.view(torch.int32)
