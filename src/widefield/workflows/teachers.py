"""Features of the teachers of a run, computed once for each example and kept in its folder."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from widefield.config.recipe import Recipe
from widefield.core.errors import option
from widefield.core.files import write_atomically
from widefield.core.form import Form
from widefield.core.names import printable
from widefield.data import Dataset
from widefield.data.source import Data
from widefield.inference.features import FeatureExtractor
from widefield.inference.initial_weights import check_published
from widefield.inference.open_encoder import open_encoder
from widefield.methods.distill import DistillConfig, teacher_rows
from widefield.train.run_dir import RunFolder


def check_teachers(recipe: Recipe) -> None:
    """Check that a run that distills has a teacher.

    Raises:
        ValueError: it has none.
    """
    if isinstance(recipe.method, DistillConfig) and not recipe.method.teacher:
        raise ValueError(
            f"distill predicts the features of a teacher: give {option('teacher', 'ENCODER')}"
        )


def write_targets(
    folder: RunFolder,
    recipe: Recipe,
    data: Data,
    dataset: Dataset,
    console: Console,
    *,
    form: Mapping[str, Any],
    consent: bool,
    download: bool,
) -> None:
    """Write the features of the teachers of a run for every example, unless they are there.

    Args:
        folder: the run.
        recipe: its settings, with the teachers.
        data: the source of its examples, which each teacher reads in its own form.
        dataset: the examples, in the order of the run.
        console: for progress and notes.
        form: options of the data that are not in the recipe, as `group`.
        consent: whether the user named the teachers in this call, so that code of theirs may be
            executed.
        download: fetch published weights that are missing.

    Raises:
        ValueError: a teacher that cannot be opened, of another kind of data, or with other inputs
            than another teacher.
    """
    method = recipe.method
    if not isinstance(method, DistillConfig) or not method.teacher:
        return
    if folder.settings_file.exists():
        folder.rename_teacher()  # of a run that was killed between the two
    record = {"teacher": list(method.teacher), "examples": _digest(dataset)}
    file = folder.targets_file.with_name("rows.json")
    if folder.targets_file.exists() and _read(file) == record:
        return
    own = [name for name in method.teacher if ".py:" in name]
    if own and not consent:
        raise ValueError(
            f"the teacher {own[0]} is code of yours, and is executed only if you name it: give "
            f"{option('teacher')} again"
        )
    for name in method.teacher:
        check_published(name, download=download)
    teachers = open_teachers(method.teacher, dataset)
    rows = teacher_rows([_features(t, recipe, data, dataset, console, form) for t in teachers])
    folder.targets_file.parent.mkdir(exist_ok=True)
    folder.targets_file.unlink(missing_ok=True)  # a kill must not leave rows beside another record
    text = json.dumps(record)
    write_atomically(file, lambda path: path.write_text(text, "utf-8"))
    write_atomically(folder.targets_file, lambda path: _save(path, rows))
    if folder.settings_file.exists():
        folder.rename_teacher()


def open_teachers(names: Sequence[str], dataset: Dataset) -> list[FeatureExtractor]:
    """Return the frozen encoders of these names.

    Raises:
        ValueError: one cannot be opened, is of another kind of data, or has other inputs than the
            first one.
    """
    teachers = [open_encoder(name) for name in names]
    for teacher in teachers:
        name = f"the teacher {printable(teacher.name)}"
        mismatch = teacher.form.mismatch(Form(kind=dataset.kind), (name, printable(dataset.spec)))
        if mismatch is not None:
            raise ValueError(f"{mismatch}: give a teacher of {dataset.kind}")
        first = replace(teachers[0].form, size=None)  # each sees the examples at its own size
        mismatch = first.mismatch(
            teacher.form, (f"the teacher {printable(teachers[0].name)}", name)
        )
        if mismatch is not None:
            raise ValueError(f"{mismatch}: give teachers with the same")
    return teachers


_CHECKED = 64
"""Examples whose values are compared with those that the teachers saw."""


def _features(
    teacher: FeatureExtractor,
    recipe: Recipe,
    data: Data,
    dataset: Dataset,
    console: Console,
    form: Mapping[str, Any],
) -> Tensor:
    """Return the features [n, D] of the examples in the order of the run."""
    for note in teacher.notes:
        console.print(printable(note), highlight=False, markup=False, soft_wrap=True)
    options: dict[str, Any] = {
        "max_examples": recipe.max_examples,
        "seed": recipe.seed,
        "seconds": recipe.seconds,
    }
    if teacher.form.size is None and dataset.kind == "images":
        teacher = replace(teacher, form=replace(teacher.form, size=dataset.form.size))
    own = teacher.open(data, quiet=console.quiet, **options, **form)
    places = {path: row for row, path in enumerate(own.paths)}
    order = [places.get(path, -1) for path in dataset.paths]
    if min(order) < 0:
        raise ValueError(
            f"{printable(teacher.name)} reads other examples of {printable(dataset.spec)} than the "
            "run: give data whose files can all be read"
        )
    return teacher.features(own.inputs, quiet=console.quiet, precision="32")[order].cpu()


def _save(path: Path, rows: Tensor) -> None:
    with path.open("wb") as file:
        np.save(file, rows.to(torch.float16).numpy())


def _digest(dataset: Dataset) -> str:
    """Return a digest of the paths of the examples in their order, and of some of their values."""
    digest = hashlib.sha256("\n".join(dataset.paths).encode("utf-8", "surrogatepass"))
    images = dataset.images if dataset.plain is None else dataset.plain
    for row in dataset.spread_rows(_CHECKED):
        digest.update(np.ascontiguousarray(images[row]).tobytes())
    return digest.hexdigest()


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
