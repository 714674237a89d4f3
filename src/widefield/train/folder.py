"""A run's folder: what was asked for, on which data, and how far it got."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import yaml
from numpy.typing import NDArray

from widefield.core.files import write_atomically
from widefield.data import Dataset
from widefield.recipe import Recipe

FORMAT = 2
"""Version of `run.yaml`: 2 nests the settings of method and views."""


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """`run.yaml`, `metrics.csv`, `manifest.parquet`, `checkpoints/`, `encoder.*`, `report.html`.

    Methods with a projection head leave `projector.safetensors` beside each encoder.
    """

    path: Path

    @property
    def settings_file(self) -> Path:
        """Every setting, the data, the seed and the versions."""
        return self.path / "run.yaml"

    @property
    def manifest_file(self) -> Path:
        """Which example has which index, and which files were skipped."""
        return self.path / "manifest.parquet"

    @property
    def last_checkpoint(self) -> Path:
        """The whole run as of its last checkpoint."""
        return self.path / "checkpoints" / "last.pt"

    @property
    def rows_folder(self) -> Path:
        """The per-example head, where its rows live on disk."""
        return self.path / "rows"

    def encoder_at(self, epoch: int) -> Path:
        """Folder of the encoder alone, as of a finished epoch."""
        return self.path / "checkpoints" / f"epoch-{epoch:05d}"

    def refuse_if_taken(self) -> None:
        """Make sure that nobody's work is overwritten.

        Raises:
            ValueError: it holds a run, or files of another kind.
        """
        if self.settings_file.exists():
            raise ValueError(
                f"{self.path} already holds a run: go on with --resume, or choose another --out"
            )
        if self.path.exists() and (not self.path.is_dir() or self._holds_something()):
            raise ValueError(f"{self.path} is not an empty folder: choose another --out")

    def _holds_something(self) -> bool:
        """Whether there is more than what a run leaves that is killed as it begins."""
        return bool({p.name for p in self.path.iterdir()} - {".lock", ".run.yaml.draft"})

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the folder; if the run is refused before it wrote anything, leave none behind."""
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            yield
        except ValueError:
            if not any(self.path.iterdir()):
                self.path.rmdir()
            raise

    def begin(self, settings: dict[str, Any], dataset: Dataset) -> None:
        """Write what a run needs to go on, and drop rows that one left which died at once."""
        shutil.rmtree(self.rows_folder, ignore_errors=True)
        self.write_settings(settings)
        self.write_manifest(dataset)

    def keep_epochs(self, epochs: int) -> None:
        """Write another number of epochs into `run.yaml`, where a resume asks for it."""
        settings = self.settings()
        if settings["recipe"]["epochs"] != epochs:
            settings["recipe"]["epochs"] = epochs
            self.write_settings(settings)

    def write_settings(self, settings: dict[str, Any]) -> None:
        """Write `run.yaml`."""
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
        write_atomically(self.settings_file, lambda draft: _write_text(draft, text))

    def settings(self) -> dict[str, Any]:
        """Read `run.yaml`.

        Raises:
            ValueError: this is no run's folder, or not one of this version.
        """
        if not self.settings_file.exists():
            raise ValueError(f"{self.path} is not a run: it has no run.yaml")
        try:
            settings = yaml.safe_load(self.settings_file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.settings_file} cannot be read as YAML: {error}") from error
        if not isinstance(settings, dict) or not {"data", "recipe"} <= settings.keys():
            raise ValueError(f"{self.settings_file} describes no run: data or recipe is missing")
        if settings.get("format") != FORMAT:
            raise ValueError(
                f"{self.settings_file} has format {settings.get('format', 1)!r} and this version "
                f"of widefield reads format {FORMAT}: use the version that wrote it, "
                f"{settings.get('widefield')}, or start a new run"
            )
        return settings

    def recipe(self) -> Recipe:
        """Return the run's recipe, as it was resolved when the run began.

        Raises:
            ValueError: `run.yaml` does not hold a recipe of this version.
        """
        try:
            return Recipe.from_dict(self.settings()["recipe"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.settings_file} holds no whole recipe: {error}") from error

    def write_manifest(self, dataset: Dataset) -> None:
        """Write which example has which index, and what was skipped."""
        n, absent = len(dataset), [None] * len(dataset.skipped)
        reasons = [*[None] * n, *[s.reason for s in dataset.skipped]]
        table = pa.table(
            {
                "index": pa.array([*range(n), *absent], pa.int64()),
                "path": [*dataset.paths, *[s.path for s in dataset.skipped]],
                "digest": pa.array([*dataset.digests().tolist(), *absent], pa.uint64()),
                "skipped": pa.array(reasons, pa.string()),
                **{
                    task: pa.array([*y.tolist(), *absent], pa.int64())
                    for task, y in dataset.labels.items()
                },
            }
        )
        write_atomically(self.manifest_file, lambda draft: pq.write_table(table, draft))

    def paths(self) -> list[str]:
        """Path of every example that the run is trained on, in order."""
        manifest = pq.read_table(self.manifest_file, columns=["index", "path"])
        used: list[str] = manifest.filter(pc.is_valid(manifest["index"]))["path"].to_pylist()
        return used

    def digests(self) -> NDArray[np.uint64]:
        """Digest of every example that the run is trained on, uint64 [n]."""
        column = pq.read_table(self.manifest_file, columns=["digest"])["digest"]
        return np.asarray(column.drop_null().to_numpy())

    def refuse_other_data(self, dataset: Dataset) -> None:
        """Make sure that every example is the one that the run began with.

        Raises:
            ValueError: the data changed; the message names the first difference.
        """
        manifest = pq.read_table(self.manifest_file, columns=["index", "path", "digest"])
        used = manifest.filter(pc.is_valid(manifest["index"]))
        change = _first_change(
            list(zip(used["path"].to_pylist(), used["digest"].to_pylist(), strict=True)),
            list(zip(dataset.paths, dataset.digests().tolist(), strict=True)),
        )
        if change:
            raise ValueError(
                f"the data changed since the run began: {change}; "
                "restore it, or start a new run with another --out"
            )


def _first_change(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> str | None:
    """What differs first between two lists of (path, digest), in words."""
    gone = sorted({path for path, _ in before} - {path for path, _ in now})
    new = sorted({path for path, _ in now} - {path for path, _ in before})
    if gone or new:
        named = ", ".join([*(f"{p} is gone" for p in gone[:1]), *(f"{p} is new" for p in new[:1])])
        return f"{named} ({len(before)} examples then, {len(now)} now)"
    other = [path for (path, old), (_, digest) in zip(before, now, strict=True) if old != digest]
    return f"{other[0]} has other pixels" if other else None


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
