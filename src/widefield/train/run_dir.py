"""The folder of a run: settings, manifest, metrics, checkpoints, encoder."""

import json
import os
import shlex
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.config.recipe import Recipe
from widefield.core.errors import option
from widefield.core.files import write_atomically
from widefield.core.form import Form
from widefield.core.names import printable
from widefield.core.plain_yaml import read_yaml, yaml_text
from widefield.data import Dataset
from widefield.encoders import ENCODER_FILE, Encoder, save_encoder
from widefield.train.folder_checks import SETTINGS_FILE, check_is_run
from widefield.train.manifest import CHANGED_MESSAGE, Growth, Manifest

RESUME_SETTINGS = ("epochs", "device", "compile")
"""Settings of the run that a resume may change."""

FORMAT = 3
"""Version of `run.yaml`."""

_STARTS = ("init", "teacher")
"""Folders that are written before `run.yaml`."""


class RunFolder:
    """Files of a run: settings, manifest, metrics, checkpoints, encoder and page.

    `run.yaml`, `manifest.parquet`, `metrics.csv`, `steps.csv`, `checkpoints/`, `encoder.*` and
    `report.html`; methods with a projection head leave `projector.safetensors` beside each encoder.
    `readout.safetensors` is the wide readout of the encoder, `comparison.json` compares the encoder
    with its baseline.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = path.expanduser()
        self.settings_file = path / SETTINGS_FILE
        """Every setting, the data, the seed and the versions."""
        self.manifest = Manifest(path / "manifest.parquet")
        """Which example has which index, and which files were skipped."""
        self.pending_manifest = Manifest(path / ".manifest-grown.draft")
        """The manifest with new examples, until they are in a checkpoint."""
        self.last_checkpoint = path / "checkpoints" / "last.pt"
        self.rows_folder = path / "rows"
        """Rows of a per-example head on disk."""
        self.init_folder = path / "init"
        """The encoder with the initial weights of the run, if it has `init`."""

    def encoder_at(self, epoch: int) -> Path:
        """Return the folder of the encoder after a finished epoch."""
        return self.path / "checkpoints" / f"epoch-{epoch:05d}"

    def _draft(self, name: str) -> Path:
        """Return the temporary name of the folder `name`, until `run.yaml` is written.

        Drafts count as no files, so that a run that is killed before leaves its folder free.
        """
        return self.path / f".{name}.draft"

    @property
    def targets_file(self) -> Path:
        """The features of teachers, a row for each example."""
        kept = self.path / "teacher"
        return (kept if kept.exists() else self._draft("teacher")) / "rows.npy"

    def targets(self, examples: int) -> NDArray[Any] | None:
        """Return the features of teachers, mapped from disk; None for a run without teachers."""
        if not self.targets_file.exists():
            return None
        try:
            # Without pickle, which could run code.
            rows = np.load(self.targets_file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            rows = np.empty(0)
        if rows.ndim != 2 or len(rows) != examples or rows.dtype != np.float16:
            raise ValueError(
                f"{self.targets_file} is damaged or of other examples: remove it, and resume"
            )
        return rows

    def has_checkpoint(self) -> bool:
        """Return whether the run has a checkpoint; without one it was killed before its first."""
        folder = self.last_checkpoint.parent
        names = os.listdir(folder) if os.path.lexists(folder) else []
        if self.last_checkpoint.name in names:
            return True
        trained = [name for name in names if name.startswith("epoch-")]
        if trained or os.path.lexists(self.path / ENCODER_FILE):
            raise ValueError(
                f"the run in {self.path} has trained, and its {self.last_checkpoint.name} is gone: "
                f"restore it, or start a new run with another {option('out')}"
            )
        return False

    def remove_incomplete(self) -> None:
        """Remove the files of a run that ended before its first step."""
        starts = (folder for name in _STARTS for folder in (self.path / name, self._draft(name)))
        for folder in (self.rows_folder, self.path / "tensorboard", *starts):
            shutil.rmtree(folder, ignore_errors=True)
        tables = (self.path / name for name in ("metrics.csv", "steps.csv"))
        for file in (self.settings_file, self.manifest.file, *tables):
            file.unlink(missing_ok=True)

    def remove_temp_files(self) -> None:
        """Remove temporary files that a killed process left; the caller holds the lock."""
        checkpoints = self.last_checkpoint.parent
        for folder in (self.path, self.init_folder, checkpoints, *checkpoints.glob("epoch-*")):
            for file in folder.glob(".*.draft"):
                if file.is_file():
                    file.unlink()

    def begin(
        self, settings: dict[str, Any], dataset: Dataset, growth: Growth, start: Encoder | None
    ) -> None:
        """Write settings, manifest and initial weights, in place of those of a killed run."""
        for folder in (self.rows_folder, self._draft("init")):
            shutil.rmtree(folder, ignore_errors=True)
        if start is not None and not self.init_folder.exists():
            save_encoder(start, self._draft("init"))
        # A kill before leaves the folder free, and one after it a run that a resume begins again.
        self.write_settings(settings)
        self.finish_start()
        self.manifest.write(dataset, growth)

    def finish_start(self) -> None:
        """Give the folders of initial weights and teachers their names, once `run.yaml` is there.

        A run that was killed between the two does so when it is resumed.
        """
        for name in _STARTS:
            with suppress(FileNotFoundError):
                self._draft(name).rename(self.path / name)

    def rename_manifest(self, checksum: Any) -> None:
        """Rename the pending manifest, if it has the `checksum` in the last checkpoint."""
        pending = self.pending_manifest
        if pending.file.exists() and pending.checksum() == checksum:
            pending.file.rename(self.manifest.file)

    def update_settings(self, recipe: Recipe, *, data: str | None, dataset: Dataset) -> None:
        """Write the settings that a resume changed into `run.yaml`."""
        before, now = self.settings(), recipe.to_dict()
        changed = {name: now[name] for name in RESUME_SETTINGS}
        after = before | {
            "recipe": before["recipe"] | changed,
            "examples": len(dataset),
            "tasks": {task: list(names) for task, names in dataset.classes.items()},
        }
        if data is not None:  # the files may have moved
            after["data"] = data
        if after != before:
            self.write_settings(after)

    def write_settings(self, settings: dict[str, Any]) -> None:
        text = yaml_text(settings)
        write_atomically(self.settings_file, lambda tmp: tmp.write_text(text, encoding="utf-8"))

    def settings(self) -> dict[str, Any]:
        check_is_run(self.path)
        return read_settings(self.settings_file)

    def recipe(self) -> Recipe:
        check_is_run(self.path)
        return load_recipe(self.settings_file)

    def in_order(self, dataset: Dataset) -> Dataset:
        """Return the same examples and classes in the order of the run, then new ones.

        A new class may have a name that sorts before another.
        """
        tasks = self.settings().get("tasks", {})
        return self.manifest.in_order(dataset).with_class_order(tasks)

    def group(self) -> str | None:
        """Return which examples of the run belong together, as given to `pretrain`."""
        return self.settings().get("group")

    def form(self) -> Form:
        settings = self.settings()
        if "form" not in settings:
            raise ValueError(f"{self.settings_file}: form is missing: restore the file")
        try:
            return Form.of_options(settings["form"])
        except ValueError as error:
            raise ValueError(
                f"{self.settings_file}: form has an {error}: restore the file"
            ) from None

    def identity(self, recipe: Recipe, manifest: Manifest) -> dict[str, Any]:
        """Return what a resume must not change, for the checkpoint."""
        # Through JSON, because tuples come back from a file as lists.
        values = json.loads(json.dumps(recipe.to_dict())).items()
        fixed = {name: value for name, value in values if name not in RESUME_SETTINGS}
        return {"recipe": fixed, "manifest": manifest.checksum()}

    def check_unchanged(self, recipe: Recipe, identity: Any) -> None:
        """Check that `run.yaml` and the manifest are those of the checkpoint."""
        now = self.identity(recipe, self.manifest)
        if identity == now:
            return
        before = identity.get("recipe") if isinstance(identity, dict) else None
        change = _first_difference(before, now["recipe"])
        if change is not None:
            raise ValueError(
                f"{self.settings_file} was edited since the checkpoint: {change}; write that back, "
                f"or start a new run with another {option('out')}"
            )
        raise ValueError(CHANGED_MESSAGE.format(self.manifest.file))


def load_recipe(file: Path) -> Recipe:
    """Return the recipe in a `run.yaml`, which has every setting."""
    values = read_settings(file)["recipe"]
    try:
        return Recipe.from_dict(values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} has an invalid recipe: {error}") from error


def read_settings(file: Path) -> dict[str, Any]:
    settings = read_yaml(file)
    if not isinstance(settings, dict) or not {"data", "recipe"} <= settings.keys():
        raise ValueError(f"{file} describes no run: data or recipe is missing")
    if settings.get("format") != FORMAT:
        version = f"widefield=={settings.get('widefield')}"
        raise ValueError(
            f"{file} has format {settings.get('format')!r} and this version of widefield reads "
            f"format {FORMAT}: start a new run, or go back to the version that wrote it, "
            f"{shlex.join(['pip', 'install', printable(str(version))])}"
        )
    for name, kind in _KINDS.items():
        if not isinstance(settings.get(name, kind()), kind):
            raise ValueError(
                f"{file}: {name} has the wrong type, {settings[name]!r}: restore it, or start a "
                "new run"
            )
    return settings


_KINDS = {
    "data": str,
    "widefield": str,
    "began": str,
    "machine": dict,
    "group": str,
    "tasks": dict,
    "form": dict,
    "threads": int,
}
"""Types of the values of `run.yaml` beside the recipe."""


def _first_difference(before: Any, now: Any, name: str = "recipe") -> str | None:
    """Return the first difference of two nested dicts in words; None if they are equal."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        pairs = ((before[key], now[key], key) for key in now)
        return next((d for pair in pairs if (d := _first_difference(*pair)) is not None), None)
    return None if before == now else f"{name} was {before!r} and is {now!r}"
