"""Images that stay encoded and are decoded at each read, whole or as random crops."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core import rng
from widefield.core.names import printable
from widefield.core.types import Crop, Fit, Range, Size
from widefield.data.decode.crops import UNIFORMS, Box, decode_crops, random_box
from widefield.data.decode.decoding import in_parallel, suppress_warnings
from widefield.data.decode.images import decode
from widefield.data.examples import Encoded, selected
from widefield.data.table import take

# Chosen by hand: enough for all threads, and 40 MB of images of 224 pixels.
_CHUNK = 256


@dataclass(frozen=True, kw_only=True)
class EncodedImages:
    """Images of one size, uint8 [n, H, W, 3], read like an array; threads decode what is read.

    Nothing is kept. All were decoded once when the data were opened, so that unreadable ones are
    not among them.
    """

    files: Sequence[Encoded]
    names: Sequence[str]
    size: Size
    fit: Fit
    black_white: Range | None
    """Black and white in images of more than 8 bits."""
    digests: NDArray[np.uint64]
    """Digest of each decoded image, as `Dataset.digests`."""
    ndim = 4
    dtype = np.dtype(np.uint8)
    nbytes = 0
    """Bytes of pixels that are kept."""

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), *self.size, 3

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        """Decode an image [H, W, C], or those of a slice or an array of indices [k, H, W, C]."""
        index = np.arange(len(self))[rows]
        if index.ndim == 0:
            return self[index[None]][0]

        def decode_row(row: int) -> None:
            decoded = decode(
                self.files[int(index[row])], self.black_white, size=self.size, fit=self.fit
            )
            assert decoded is not None, "black and white are known once the data are open"
            out[row] = decoded.pixels

        out = np.empty((len(index), *self.shape[1:]), self.dtype)
        with suppress_warnings():
            self._decode(decode_row, index)
        return out

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        for first in range(0, len(self), _CHUNK):
            yield from self[first : first + _CHUNK]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Decode all images into memory."""
        return np.asarray(self[:], dtype)

    def subset(self, rows: NDArray[np.int64]) -> "EncodedImages":
        """Return some of the images, encoded."""
        return replace(
            self,
            files=selected(self.files, rows),
            names=take(self.names, rows),
            digests=self.digests[rows],
        )

    def crops(
        self, index: NDArray[np.int64], crop: Crop, *, views: int, seed: int, read: int
    ) -> NDArray[np.uint8]:
        """Return random crops [views, k, H, W, C] of the images `index` at full resolution.

        They are a function of seed, read, view and index, whatever else is read and by how many
        threads.
        """
        # Each image has numbers of its own: its crops do not depend on the others of a batch.
        positions = index[:, None] * UNIFORMS + np.arange(UNIFORMS)
        draws = [
            rng.uniforms(seed, f"crop {read}/{view}", positions).tolist() for view in range(views)
        ]

        def decode_row(row: int) -> None:
            def boxes_in(frame: Size) -> list[Box]:
                return [random_box(draw[row], frame, crop) for draw in draws]

            file = self.files[int(index[row])]
            decode_crops(file, out[:, row], boxes_in, self.black_white, self.fit)

        out = np.empty((views, len(index), *self.shape[1:]), self.dtype)
        self._decode(decode_row, index)
        return out

    def _decode(self, decode_row: Callable[[int], None], index: NDArray[np.int64]) -> None:
        """Call `decode_row(row)` for each row of `index`, in threads."""
        # One image at a time: sizes differ, and a thread with large ones would hold up the batch.
        with closing(in_parallel(decode_row, range(len(index)), chunk=1)) as results:
            for row, reason in results:
                if reason is not None:
                    raise ValueError(
                        f"{printable(self.names[int(index[row])])} was read when the data were "
                        f"opened and cannot be read now ({reason}): restore it"
                    )
