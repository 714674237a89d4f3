"""Write the features of every example, with index, path and labels."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from widefield.core.files import write_atomically
from widefield.workflows.extractor import EncoderSpec, Features, open_encoder
from widefield.workflows.pretrain import Data

FORMATS = (".npz", ".parquet")


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Features of every example, in the data's stable order."""

    features: np.ndarray
    """float32 [n, D]."""
    index: np.ndarray
    """int64 [n], 0 .. n-1."""
    paths: list[str]
    labels: dict[str, np.ndarray]
    """Class ids of each task, int64 [n]."""
    classes: dict[str, tuple[str, ...]]
    """Class names of each task."""
    notes: tuple[str, ...] = ()
    """Which weights were used, and what was skipped or chosen in reading the images."""

    def save(self, path: str | Path) -> None:
        """Write `.npz` (features, index, path, one array a task) or `.parquet` (a row each).

        Raises:
            ValueError: another suffix.
        """
        path = Path(path)
        check_format(path)
        write = self._write_npz if path.suffix == ".npz" else self._write_parquet
        write_atomically(path, write)

    def _write_npz(self, path: Path) -> None:
        labels = {f"label_{task}": y for task, y in self.labels.items()}
        names = {f"classes_{task}": np.array(c) for task, c in self.classes.items()}
        columns = {"features": self.features, "index": self.index, "path": np.array(self.paths)}
        with path.open("wb") as f:
            np.savez(f, **columns, **labels, **names)  # type: ignore[arg-type]

    def _write_parquet(self, path: Path) -> None:
        features = pa.FixedSizeListArray.from_arrays(
            pa.array(self.features.ravel()), self.features.shape[1]
        )
        labels = {
            f"label_{task}": pa.array([self.classes[task][k] for k in y])
            for task, y in self.labels.items()
        }
        table = {"index": self.index, "path": self.paths, **labels, "features": features}
        pq.write_table(pa.table(table), path)


def embed(
    encoder: EncoderSpec,
    data: Data,
    *,
    features: Features = "pooled",
    limit: int | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Embedding:
    """Compute the features of every example of `data`, and write them to `out` if it is given.

    Args:
        encoder: anything that `open_encoder` opens, or a module.
        data: a source, as `pretrain` takes it.
        features: pooled, feature-map for those before pooling, or projected for those after the
            projector that the run was trained with.
        limit: take a class-balanced first N examples.
        out: a `.npz` or `.parquet` file.
        overwrite: replace `out` if it is there.
        quiet: show no progress.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.

    Example:
        >>> embed("random", "photos:test", limit=4).features.shape
        (4, 128)
    """
    if out is not None:
        check_format(Path(out))
        if Path(out).exists() and not overwrite:
            raise ValueError(f"{out} is already there: choose another name, or pass --overwrite")
    extractor = open_encoder(encoder, features)
    dataset = extractor.open(data, limit=limit, quiet=quiet)
    embedding = Embedding(
        features=extractor.features(dataset.images).cpu().numpy(),
        index=np.arange(len(dataset)),
        paths=dataset.paths,
        labels=dataset.labels,
        classes=dataset.classes,
        notes=extractor.notes + dataset.notes,
    )
    if out is not None:
        embedding.save(out)
    return embedding


def check_format(path: Path) -> None:
    """Refuse a file whose suffix names no format of `FORMATS`."""
    if path.suffix not in FORMATS:
        raise ValueError(f"cannot write {path.name}: its suffix must be .npz or .parquet")
