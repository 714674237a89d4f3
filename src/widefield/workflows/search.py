"""The examples of some data that are nearest to a query."""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from widefield.core.errors import input_errors
from widefield.core.files import checked_output, write_atomically
from widefield.core.scale import unit_rows
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import OnNote
from widefield.data import Dataset
from widefield.data.source import Data
from widefield.data.spec import MEMORY
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.frozen import opened
from widefield.inference.open_encoder import EncoderSpec
from widefield.report import write_page
from widefield.report.explore import Coloring, ExplorePage, ImageGroup, Section
from widefield.report.tables import ResultTable, TabularResult
from widefield.version import __version__
from widefield.workflows.explore_page import file_sizes, rendered


@dataclass(frozen=True, kw_only=True, repr=False)
class Nearest(TabularResult):
    """The examples nearest to a query, the nearest first."""

    encoder: str
    data: str
    query: str
    paths: list[str]
    cosine: NDArray[np.floating]
    """Cosine of their features with those of the query, [k]."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield search --json` prints them."""
        pairs = zip(self.paths, self.cosine.tolist(), strict=True)
        return {
            "encoder": self.encoder,
            "data": self.data,
            "query": self.query,
            "nearest": [{"path": path, "cosine": cosine} for path, cosine in pairs],
            "notes": list(self.notes),
        }

    def tables(self) -> list[ResultTable]:
        """Return rank, path and cosine of each example."""
        pairs = enumerate(zip(self.paths, self.cosine.tolist(), strict=True), 1)
        return [
            ResultTable(
                title=f"nearest to {self.query} by {self.encoder}",
                columns=["rank", "path", "cosine"],
                rows=[[str(rank), path, f"{cosine:.3f}"] for rank, (path, cosine) in pairs],
            )
        ]

    def save(self, path: str | Path) -> None:
        """Write a `.csv` file with the columns rank, path and cosine."""
        rank = list(range(1, len(self.paths) + 1))
        table = pa.table({"rank": rank, "path": self.paths, "cosine": self.cosine})
        write_atomically(Path(path), partial(pyarrow.csv.write_csv, table))


@input_errors
@describe_arguments
def search(
    encoder: EncoderSpec,
    data: Data,
    *,
    image: str | Path,
    count: int = 20,
    features: FeatureKind = "pooled",
    dim: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Nearest:
    """Find the examples that are most similar to a file, by the cosine of their features.

    Args:
        image: the query, an image or sound file.
        count: number of examples.
        out: an `.html` file, which loads no other files. A table of the same name, with the suffix
            .csv, is written beside it.

    Raises:
        ValueError: invalid input, such as a query that cannot be read.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> images = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Image.fromarray(images[4]).save(f"{folder}/query.png")
        ...     search("pixels", images, image=f"{folder}/query.png", count=2).paths[0]
        'row 4'
    """
    if out is not None:
        checked_output(out, (".html",), overwrite=overwrite)
        checked_output(table_of(out), (".csv",), overwrite=overwrite)
    if count < 1:
        raise ValueError(f"count is {count}; expected at least 1")
    if not Path(image).is_file():
        raise ValueError(f"the query {str(image)!r} is no file: give an image or sound file")
    extractor, dataset = opened(encoder, data, features=features, dim=dim, quiet=quiet)
    query = _open_query(extractor, Path(image), dataset)
    extractor = extractor.ready(dataset, on_note=on_note, quiet=quiet)
    h, q = (unit_rows(extractor.features(d.inputs, quiet=quiet)) for d in (dataset, query))
    if not q.any():
        raise ValueError(
            f"the features of the query {str(image)!r} are all 0, as those of a black image by "
            "pixels are, and have no cosine: give another query, or another encoder"
        )
    cosine = (h @ q[0]).cpu().numpy()
    rows = np.argsort(-cosine, kind="stable")[:count]
    found = Nearest(
        encoder=extractor.name,
        data=dataset.spec,
        query=str(image),
        paths=[dataset.paths[row] for row in rows],
        cosine=cosine[rows],
        notes=(*extractor.notes, *dataset.notes),
    )
    if out is not None:
        write_page(_page(found, query, dataset.subset(rows)), out, overwrite=overwrite)
        found.save(table_of(out))
    return found


def table_of(out: str | Path) -> Path:
    """Return the table beside a page."""
    return Path(out).with_suffix(".csv")


def _open_query(extractor: FeatureExtractor, image: Path, dataset: Dataset) -> Dataset:
    """Return the query as the only example of a folder, in the form of the data."""
    with TemporaryDirectory() as folder:
        # A link in a folder, so that the query is opened as files of a folder are. A dot at the
        # start of its name would hide it.
        os.symlink(image.absolute(), Path(folder, image.name.lstrip(".")))
        try:
            query = extractor.open(folder, like=dataset, quiet=True)
            # A copy, because the folder is removed.
            return replace(query.subset(np.arange(1)), spec=MEMORY)
        except ValueError as error:
            one = dataset.kind.removesuffix("s")
            raise ValueError(
                f"the query {str(image)!r} cannot be read: give {one} data, as in {dataset.spec}"
            ) from error


def _page(found: Nearest, query: Dataset, nearest: Dataset) -> str:
    k, one = len(nearest), nearest.kind.removesuffix("s")
    return ExplorePage(
        title=f"widefield search: {found.data} by {found.encoder}",
        summary=f"The {k:,} nearest of {found.data} to {found.query}: {found.paths[0]} first, with "
        f"cosine {found.cosine[0]:.2f}.",
        images=np.concatenate([rendered(query), rendered(nearest)]),
        sizes=np.concatenate([file_sizes(query), file_sizes(nearest)]),
        example=one,
        paths=[found.query, *nearest.paths],
        colorings=[
            Coloring(name="found", values=["query", "nearest"], ids=np.arange(k + 1).clip(max=1)),
            *(
                Coloring(name=t, values=nearest.classes[t], ids=np.append(-1, y), role="task")
                for t, y in nearest.labels.items()
            ),
        ],
        sections=[
            Section(
                name="query",
                title="Query",
                caption="As the encoder gets it.",
                groups=[ImageGroup(rows=[0])],
            ),
            Section(
                name="nearest",
                title="Nearest",
                caption="By the cosine of their features with those of the query.",
                groups=[
                    ImageGroup(
                        rows=range(1, k + 1),
                        captions=[
                            f"{c:.3f} {path}"
                            for c, path in zip(found.cosine, nearest.paths, strict=True)
                        ],
                    )
                ],
            ),
        ],
        notes=[f"Note: {note}." for note in found.notes],
        metadata={"encoder": found.encoder, "data": found.data, "widefield": __version__},
    ).html()
