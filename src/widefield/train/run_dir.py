"""The folder of a run: settings, manifest, metrics, checkpoints, encoder."""

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.config.recipe import Recipe
from widefield.core.errors import option
from widefield.core.files import make_folders, remove_empty, write_atomically
from widefield.core.form import Form
from widefield.core.names import printable
from widefield.core.plain_yaml import read_yaml, yaml_text
from widefield.data import Dataset
from widefield.encoders import ENCODER_FILE, READOUT_FILE, Encoder, save_encoder
from widefield.train.folder_checks import SETTINGS_FILE, check_is_run
from widefield.train.manifest import CHANGED_MESSAGE, Growth, Manifest

RESUME_SETTINGS = ("epochs", "device", "compile")
"""Settings of the run that a resume may change."""

FORMAT = 3
"""Version of `run.yaml`."""


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """Files of a run: settings, manifest, metrics, checkpoints, encoder and page.

    `run.yaml`, `manifest.parquet`, `metrics.csv`, `steps.csv`, `checkpoints/`, `encoder.*` and
    `report.html`; methods with a projection head leave `projector.safetensors` beside each encoder.
    `readout.safetensors` is the wide readout of the encoder, `comparison.json` compares the encoder
    with its baseline, `init/` has the initial weights.
    """

    path: Path

    @property
    def settings_file(self) -> Path:
        """Every setting, the data, the seed and the versions."""
        return self.path / SETTINGS_FILE

    @property
    def manifest(self) -> Manifest:
        """Which example has which index, and which files were skipped."""
        return Manifest(self.path / "manifest.parquet")

    @property
    def pending_manifest(self) -> Manifest:
        """The manifest with new examples, until they are in a checkpoint."""
        return Manifest(self.path / ".manifest-grown.draft")

    @property
    def last_checkpoint(self) -> Path:
        """The last checkpoint."""
        return self.path / "checkpoints" / "last.pt"

    @property
    def rows_folder(self) -> Path:
        """Folder of the rows of a per-example head on disk."""
        return self.path / "rows"

    @property
    def targets_file(self) -> Path:
        """The features of teachers, a row for each example."""
        kept = self.path / "teacher"
        return (kept if kept.exists() else self._temp_teacher) / "rows.npy"

    @property
    def _temp_teacher(self) -> Path:
        """Temporary name of the folder of teachers, until `run.yaml` is written."""
        return self.path / ".teacher.draft"

    def targets(self, examples: int) -> NDArray[Any] | None:
        """Return the features of teachers, mapped from disk; None for a run without teachers.

        Raises:
            ValueError: the file is damaged, or of another number of examples.
        """
        if not self.targets_file.exists():
            return None
        try:
            rows = np.load(self.targets_file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            rows = np.empty(0)
        if rows.ndim != 2 or len(rows) != examples or rows.dtype != np.float16:
            raise ValueError(
                f"{self.targets_file} is damaged or of other examples: remove it, and resume"
            )
        return rows

    @property
    def init_folder(self) -> Path:
        """The encoder with the initial weights of the run, if it has `init`."""
        return self.path / "init"

    @property
    def _temp_init(self) -> Path:
        """Temporary name of `init_folder`, until `run.yaml` is written."""
        return self.path / ".init.draft"

    @property
    def readout_file(self) -> Path:
        """The wide readout of the encoder, once the run has finished."""
        return self.path / READOUT_FILE

    @property
    def comparison_file(self) -> Path:
        """The comparison of the encoder with its baseline."""
        return self.path / "comparison.json"

    def encoder_at(self, epoch: int) -> Path:
        """Return the folder of the encoder after a finished epoch."""
        return self.path / "checkpoints" / f"epoch-{epoch:05d}"

    def has_encoder_at(self, epoch: int, *, projector: bool) -> bool:
        """Return whether the encoder of a finished epoch is saved, with its projector if any."""
        last = "projector.safetensors" if projector else ENCODER_FILE
        return (self.encoder_at(epoch) / last).exists()

    @contextmanager
    def created(self) -> Iterator[None]:
        """Create the folder, and remove it on an error if it is empty."""
        created_folders = make_folders(self.path)
        try:
            yield
        except BaseException:
            remove_empty(created_folders)
            raise

    def has_checkpoint(self) -> bool:
        """Return whether the run has a checkpoint; without one it was killed before its first.

        Raises:
            ValueError: it has none, but has trained.
        """
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
        drafts = (self._temp_init, self._temp_teacher)
        for folder in (self.rows_folder, self.init_folder, *drafts):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.path / "tensorboard", ignore_errors=True)
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
        for folder in (self.rows_folder, self._temp_init):
            shutil.rmtree(folder, ignore_errors=True)
        if start is not None and not self.init_folder.exists():
            save_encoder(start, self._temp_init)
        self.write_settings(settings)
        self.rename_init()
        self.rename_teacher()
        self.manifest.write(dataset, growth)

    def rename_init(self) -> None:
        """Rename the temporary folder of initial weights, if it is there."""
        with suppress(FileNotFoundError):
            self._temp_init.rename(self.init_folder)

    def rename_teacher(self) -> None:
        """Rename the temporary folder of teachers, if it is there."""
        with suppress(FileNotFoundError):
            self._temp_teacher.rename(self.path / "teacher")

    def rename_manifest(self, checksum: Any) -> None:
        """Rename the pending manifest, if it has the `checksum` in the last checkpoint."""
        pending = self.pending_manifest
        if pending.file.exists() and pending.checksum() == checksum:
            pending.file.rename(self.manifest.file)

    def update_settings(self, recipe: Recipe, *, data: str | None, dataset: Dataset) -> None:
        """Write the settings that a resume changed into `run.yaml`.

        `data` is the data spec of the examples, None for arrays.
        """
        settings, now = self.settings(), recipe.to_dict()
        new_recipe = {**settings["recipe"], **{name: now[name] for name in RESUME_SETTINGS}}
        tasks = {task: list(names) for task, names in dataset.classes.items()}
        new_settings = {
            **settings,
            "recipe": new_recipe,
            "examples": len(dataset),
            "tasks": tasks,
        }
        if data is not None:  # the files may have moved
            new_settings["data"] = data
        if new_settings != settings:
            self.write_settings(new_settings)

    def write_settings(self, settings: dict[str, Any]) -> None:
        """Write `run.yaml`."""
        text = yaml_text(settings)
        write_atomically(self.settings_file, lambda tmp: tmp.write_text(text, encoding="utf-8"))

    def settings(self) -> dict[str, Any]:
        """Read `run.yaml`.

        Raises:
            ValueError: this is not the folder of a run, or of another version.
        """
        return read_settings(self._existing_settings_file())

    def recipe(self) -> Recipe:
        """Return the resolved recipe of the run.

        Raises:
            ValueError: `run.yaml` does not hold a recipe of this version.
        """
        return load_recipe(self._existing_settings_file())

    def in_order(self, dataset: Dataset) -> Dataset:
        """Return the same examples and classes in the order of the run, then new ones.

        A new class may have a name that sorts before another.

        Raises:
            ValueError: as `Manifest.in_order`.
        """
        tasks = self.settings().get("tasks", {})
        return self.manifest.in_order(dataset).with_class_order(tasks)

    def group(self) -> str | None:
        """Return which examples of the run belong together, as given to `pretrain`.

        Raises:
            ValueError: `run.yaml` has no text there.
        """
        group = self.settings().get("group")
        if group is not None and not isinstance(group, str):
            raise ValueError(f"{self.settings_file}: group is {group!r}: restore the file")
        return group

    def form(self) -> Form:
        """Return the form of the run's examples.

        Raises:
            ValueError: `run.yaml` has no valid form.
        """
        settings = self.settings()
        if "form" not in settings:
            raise ValueError(f"{self.settings_file}: form is missing: restore the file")
        try:
            return Form.of_options(settings["form"])
        except ValueError as error:
            raise ValueError(
                f"{self.settings_file}: form has an {error}: restore the file"
            ) from None

    def _existing_settings_file(self) -> Path:
        check_is_run(self.path)
        return self.settings_file

    def identity(self, recipe: Recipe, manifest: Manifest) -> dict[str, Any]:
        """Return what a resume must not change, for the checkpoint.

        Raises:
            ValueError: the manifest is missing.
        """
        # Through JSON, because tuples come back from a file as lists.
        values = json.loads(json.dumps(recipe.to_dict())).items()
        fixed = {name: value for name, value in values if name not in RESUME_SETTINGS}
        return {"recipe": fixed, "manifest": manifest.checksum()}

    def check_unchanged(self, recipe: Recipe, identity: Any) -> None:
        """Check that `run.yaml` and the manifest are those of the checkpoint.

        Raises:
            ValueError: one was edited; the message names the setting.
        """
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
    """Return the recipe in a `run.yaml`, which has every setting.

    Raises:
        ValueError: it cannot be read, or holds no recipe of this version.
    """
    values = read_settings(file)["recipe"]
    try:
        return Recipe.from_dict(values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} has an invalid recipe: {error}") from error


def read_settings(file: Path) -> dict[str, Any]:
    """Read a `run.yaml`.

    Raises:
        ValueError: it describes no run, or not one of this version.
    """
    settings = read_yaml(file)
    if not isinstance(settings, dict) or not {"data", "recipe"} <= settings.keys():
        raise ValueError(f"{file} describes no run: data or recipe is missing")
    if settings.get("format") != FORMAT:
        wrote = f"widefield=={settings.get('widefield')}"
        raise ValueError(
            f"{file} has format {settings.get('format')!r} and this version of widefield reads "
            f"format {FORMAT}: start a new run, or go back to the version that wrote it, "
            f"{shlex.join(['pip', 'install', printable(str(wrote))])}"
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
