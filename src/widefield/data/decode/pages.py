"""Pages of image files as examples of their own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.data.columns import Names
from widefield.data.decode.images import in_parallel, open_image
from widefield.data.examples import Encoded, Examples


class Pages(Sequence[Encoded]):
    """The pages of files, one at a time."""

    def __init__(
        self, files: Sequence[Encoded], file: NDArray[np.int64], page: NDArray[np.int64]
    ) -> None:
        self._files, self._file, self._page = files, file, page

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: Any) -> Any:
        file = self._files[int(self._file[index])]
        page = int(self._page[index])
        if page < 0:  # a file that could not be counted is read whole, and fails there
            return file
        with open_image(file) as image:
            image.seek(page)
            return image.copy()


def pages_of(examples: Examples) -> Examples:
    """Return each page of the files as an example, with the labels of its file.

    The name of a page is that of its file and "page 1", "page 2", ...
    """
    assert examples.files is not None
    files = examples.files

    def count(row: int) -> int:
        with open_image(files[row]) as image:
            return int(getattr(image, "n_frames", 1))

    counts = np.ones(len(files), dtype=np.int64)
    failed = np.zeros(len(files), dtype=bool)
    for row, result in in_parallel(count, range(len(files)), 0, None):
        failed[row] = isinstance(result, str)
        counts[row] = 1 if failed[row] else result
    rows = np.repeat(np.arange(len(files)), counts)
    page = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    names = [
        f"{examples.names[row]} page {number + 1}"
        for row, number in zip(rows.tolist(), page.tolist(), strict=True)
    ]
    return replace(
        examples,
        names=Names(names),
        files=Pages(files, rows, np.where(failed[rows], -1, page)),
        labels={task: y[rows] for task, y in examples.labels.items()},
        is_test=None if examples.is_test is None else examples.is_test[rows],
    )
