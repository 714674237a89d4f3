"""A run's folder: what was asked for, on which data, and how far it got."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from widefield.config.recipe import Recipe
from widefield.core.files import is_temp_file, make_folders, remove_empty, write_atomically
from widefield.core.plain_yaml import read_yaml, yaml_text
from widefield.core.types import Size
from widefield.core.validation import is_valid
from widefield.data import Dataset
from widefield.encoders import Encoder, save_encoder
from widefield.train.manifest import CHANGED, Growth, Manifest

MAY_CHANGE = ("epochs", "device")
"""Settings of the run that a resume may be given others of."""

FORMAT = 3
"""Version of `run.yaml`: 3 has the names of settings that 2 had other names for."""


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """Files of a run: settings, manifest, metrics, checkpoints, encoder and page.

    `run.yaml`, `manifest.parquet`, `metrics.csv`, `steps.csv`, `checkpoints/`, `encoder.*` and
    `report.html`; methods with a projection head leave `projector.safetensors` beside each encoder.
    `comparison.json` has the encoder beside its baseline, `init/` the weights that it started from.
    """

    path: Path

    @property
    def settings_file(self) -> Path:
        """Every setting, the data, the seed and the versions."""
        return self.path / "run.yaml"

    @property
    def manifest(self) -> Manifest:
        """Which example has which index, and which files were skipped."""
        return Manifest(self.path / "manifest.parquet")

    @property
    def grown_manifest(self) -> Manifest:
        """The manifest with new examples, until a checkpoint has them."""
        return Manifest(self.path / ".manifest-grown.draft")

    @property
    def last_checkpoint(self) -> Path:
        """The whole run as of its last checkpoint."""
        return self.path / "checkpoints" / "last.pt"

    @property
    def rows_folder(self) -> Path:
        """The per-example head, where its rows live on disk."""
        return self.path / "rows"

    @property
    def start_folder(self) -> Path:
        """The encoder that the run began from, where it had a start."""
        return self.path / "init"

    @property
    def _start_draft(self) -> Path:
        """The start until `run.yaml` is there, under a name that holds no folder taken."""
        return self.path / ".init.draft"

    @property
    def comparison_file(self) -> Path:
        """The encoder beside its baseline, and the verdict."""
        return self.path / "comparison.json"

    def encoder_at(self, epoch: int) -> Path:
        """Folder of the encoder alone, as of a finished epoch."""
        return self.path / "checkpoints" / f"epoch-{epoch:05d}"

    def holds_encoder_at(self, epoch: int, *, projector: bool) -> bool:
        """Return whether the encoder of a finished epoch is whole, its projector with it if any."""
        last = "projector.safetensors" if projector else "encoder.safetensors"
        return (self.encoder_at(epoch) / last).exists()

    def refuse_if_taken(self) -> None:
        """Make sure that nobody's work is overwritten.

        Raises:
            ValueError: it holds a run, or files of another kind.
        """
        if os.path.lexists(self.settings_file):
            raise ValueError(
                f"{self.path} already holds a run: go on with --resume, or choose another --out"
            )
        if self.path.exists() and (not self.path.is_dir() or self._holds_something()):
            raise ValueError(f"{self.path} is not an empty folder: choose another --out")

    def _holds_something(self) -> bool:
        """Whether there is more than what a run leaves that is killed as it begins."""
        return any(p.name != ".lock" and not is_temp_file(p.name) for p in self.path.iterdir())

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make the folder; if the run ends before it left anything, leave none behind."""
        made = make_folders(self.path)
        try:
            yield
        except BaseException:
            remove_empty(made)
            raise

    def has_checkpoint(self) -> bool:
        """Return whether the run has one, so that it goes on; else it died before its first.

        Raises:
            ValueError: it has none, and has trained.
        """
        folder = self.last_checkpoint.parent
        names = os.listdir(folder) if os.path.lexists(folder) else []
        if self.last_checkpoint.name in names:
            return True
        trained = [name for name in names if name.startswith("epoch-")]
        if trained or os.path.lexists(self.path / "encoder.safetensors"):
            raise ValueError(
                f"the run in {self.path} has trained, and its {self.last_checkpoint.name} is gone: "
                "restore it, or start a new run with another --out"
            )
        return False

    def withdraw(self) -> None:
        """Remove what a run began here that ended before its first step."""
        begun = (self.rows_folder, self.start_folder, self._start_draft, self.path / "tensorboard")
        for folder in begun:
            shutil.rmtree(folder, ignore_errors=True)
        tables = (self.path / name for name in ("metrics.csv", "steps.csv"))
        for file in (self.settings_file, self.manifest.file, *tables):
            file.unlink(missing_ok=True)

    def remove_drafts(self) -> None:
        """Remove temporary files that a killed process left; the caller holds the lock."""
        checkpoints = self.last_checkpoint.parent
        for folder in (self.path, self.start_folder, checkpoints, *checkpoints.glob("epoch-*")):
            for file in folder.glob(".*.draft"):
                if file.is_file():
                    file.unlink()

    def begin(
        self, settings: dict[str, Any], dataset: Dataset, start: Encoder | None = None
    ) -> None:
        """Write what a run needs to go on, and drop what one left which died at once."""
        for folder in (self.rows_folder, self._start_draft):
            shutil.rmtree(folder, ignore_errors=True)
        if start is not None and not self.start_folder.exists():
            save_encoder(start, self._start_draft)
        self.write_settings(settings)
        self.name_start()
        self.manifest.write(dataset, Growth(first=len(dataset)))

    def name_start(self) -> None:
        """Give the start its name, which a run that was killed as it began may not have done."""
        with suppress(FileNotFoundError):
            self._start_draft.rename(self.start_folder)

    def name_manifest(self, checksum: Any) -> None:
        """Give the grown manifest its name, if it is the one that the last checkpoint names."""
        grown = self.grown_manifest
        if grown.file.exists() and grown.checksum() == checksum:
            grown.file.rename(self.manifest.file)

    def keep_changed(self, recipe: Recipe, *, data: str | None, examples: int) -> None:
        """Write what a resume changed into `run.yaml`, where the next one has it.

        `data` is where the examples were read, None of arrays.
        """
        settings, now = self.settings(), recipe.to_dict()
        recipe_kept = {**settings["recipe"], **{name: now[name] for name in MAY_CHANGE}}
        kept = {**settings, "recipe": recipe_kept, "examples": examples}
        if data is not None:  # they may have moved, and a probe of the run reads them there
            kept["data"] = data
        if kept != settings:
            self.write_settings(kept)

    def write_settings(self, settings: dict[str, Any]) -> None:
        """Write `run.yaml`."""
        text = yaml_text(settings)
        write_atomically(self.settings_file, lambda draft: _write_text(draft, text))

    def settings(self) -> dict[str, Any]:
        """Read `run.yaml`.

        Raises:
            ValueError: this is no run's folder, or not one of this version.
        """
        return read_settings(self._file_of_a_run())

    def recipe(self) -> Recipe:
        """Return the run's recipe, as it was resolved when the run began.

        Raises:
            ValueError: `run.yaml` does not hold a recipe of this version.
        """
        return recipe_of(self._file_of_a_run())

    def form(self) -> dict[str, Any]:
        """Return the form of the run's examples, as `Dataset.form`.

        Raises:
            ValueError: `run.yaml` does not hold it as a run writes it.
        """
        settings = self.settings()
        if "form" not in settings:
            raise ValueError(f"{self.settings_file}: form is missing: restore the file")
        form = {k: tuple(v) if isinstance(v, list) else v for k, v in settings["form"].items()}
        for name, value in form.items():
            if name not in _FORM or not is_valid(_FORM[name], value):
                raise ValueError(
                    f"{self.settings_file}: form has {name} {value!r}, which no run writes there: "
                    "restore the file"
                )
        return form

    def _file_of_a_run(self) -> Path:
        if not self.settings_file.exists():
            raise ValueError(f"{self.path} is not a run: it has no run.yaml")
        return self.settings_file

    def identity(self, recipe: Recipe, manifest: Manifest) -> dict[str, Any]:
        """Return what has to stay the same from one resume to the next, for the checkpoint.

        Raises:
            ValueError: the manifest is missing.
        """
        return {"recipe": _fixed(_plain(recipe.to_dict())), "manifest": manifest.checksum()}

    def refuse_edited(self, recipe: Recipe, identity: Any) -> None:
        """Make sure that `run.yaml` and the manifest are those that the checkpoint was made with.

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
                "or start a new run with another --out"
            )
        raise ValueError(CHANGED.format(self.manifest.file))


def recipe_of(file: Path) -> Recipe:
    """Return the recipe in a `run.yaml`, every setting of which stands there.

    Raises:
        ValueError: it cannot be read, or holds no recipe of this version.
    """
    values = read_settings(file)["recipe"]
    try:
        return Recipe.from_dict(values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} holds no whole recipe: {error}") from error


def read_settings(file: Path) -> dict[str, Any]:
    """Read a `run.yaml`.

    Raises:
        ValueError: it describes no run, or not one of this version.
    """
    settings = read_yaml(file)
    if not isinstance(settings, dict) or not {"data", "recipe"} <= settings.keys():
        raise ValueError(f"{file} describes no run: data or recipe is missing")
    if settings.get("format") != FORMAT:
        raise ValueError(
            f"{file} has format {settings.get('format')!r} and this version of widefield reads "
            f"format {FORMAT}: use widefield {settings.get('widefield')}, which wrote it, or start "
            "a new run"
        )
    for name, kind in _KINDS.items():
        if not isinstance(settings.get(name, kind()), kind):
            raise ValueError(
                f"{file}: {name} has another type than a run writes there, "
                f"{settings[name]!r}: restore the file, or start a new run"
            )
    return settings


_KINDS = {
    "data": str,
    "widefield": str,
    "began": str,
    "machine": dict,
    "tasks": dict,
    "form": dict,
}
"""Types of what `run.yaml` holds beside the recipe."""


_FORM = {"image_size": Size, "max_value": float | None, "sample_rate": int}
"""What the form of examples may hold."""


def _fixed(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that stay the same from one resume to the next."""
    return {name: value for name, value in recipe.items() if name not in MAY_CHANGE}


def _plain(values: Any) -> Any:
    """Return `values` as JSON has them, so that tuples equal the lists that a file gives back."""
    return json.loads(json.dumps(values))


def _first_difference(before: Any, now: Any, name: str = "recipe") -> str | None:
    """Return which of two nests of settings differ first, in words; None if they are equal."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        pairs = ((before[key], now[key], key) for key in now)
        return next((d for pair in pairs if (d := _first_difference(*pair)) is not None), None)
    return None if before == now else f"{name} was {before!r} and is {now!r}"


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
