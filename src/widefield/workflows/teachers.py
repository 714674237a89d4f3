"""Features of the teachers of a run, computed once for each example and kept in its folder."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from widefield.core.errors import option
from widefield.core.files import write_atomically
from widefield.core.form import Form
from widefield.core.names import printable
from widefield.data import Dataset
from widefield.data.open_options import OpenOptions
from widefield.data.table import EXCLUDED
from widefield.inference.features import FeatureExtractor
from widefield.inference.initial_weights import check_published
from widefield.inference.open_encoder import open_encoder
from widefield.methods.distill import DistillConfig, teacher_rows
from widefield.train.progress import print_line
from widefield.train.run import Prepared
from widefield.train.run_dir import RunFolder
from widefield.workflows.start import Request


def write_targets(request: Request, prepared: Prepared, *, consent: bool) -> None:
    """Write the features of the teachers of a run for every example, unless they are there.

    Each teacher reads the data in its own form; its rows are in the order of the run. With
    `consent` the user named the teachers in this call, so that code of theirs may be executed.
    """
    method, folder = prepared.recipe.method, request.folder
    if not isinstance(method, DistillConfig) or not method.teacher:
        return
    record = {"teacher": list(method.teacher), "examples": _digest(prepared.dataset)}
    file = folder.targets_file.with_name("rows.json")
    if folder.targets_file.exists() and _read(file) == record:
        return
    custom = [name for name in method.teacher if ".py:" in name]
    if custom and not consent:
        raise ValueError(
            f"the teacher {custom[0]} is code of yours, and is executed only if you name it: give "
            f"{option('teacher')} again"
        )
    for name in method.teacher:
        check_published(name, download=request.download)
    teachers = open_teachers(method.teacher, prepared.dataset)
    features = [_features(teacher, request, prepared) for teacher in teachers]
    # As the encoder keeps its mean, so that examples that join change no other row.
    rows = teacher_rows(features, first=None if prepared.growth is None else prepared.growth.first)
    if prepared.has_checkpoint:
        _check_same(rows, folder)
    folder.targets_file.parent.mkdir(exist_ok=True)
    folder.targets_file.unlink(missing_ok=True)  # a kill must not leave rows beside another record
    text = json.dumps(record)
    write_atomically(file, lambda path: path.write_text(text, "utf-8"))
    write_atomically(folder.targets_file, lambda path: _save(path, rows))
    if folder.settings_file.exists():
        folder.finish_start()


# Rounding on another device changes it by less; chosen by hand.
_SAME_COSINE = 0.999
"""Least mean cosine of the same features, computed twice."""


def _check_same(rows: Tensor, folder: RunFolder) -> None:
    """Check that the first of `rows` are those that the run has been trained on, if they are there.

    A file of a teacher may have been replaced before examples were added.
    """
    try:
        before = torch.from_numpy(np.load(folder.targets_file, allow_pickle=False)).float()
    except (OSError, ValueError, EOFError):  # removed, or cut off by a kill
        return
    first = rows[: len(before)]
    is_other = before.shape != first.shape
    if is_other or F.cosine_similarity(before, first).mean() < _SAME_COSINE:
        raise ValueError(
            f"the teachers of the run in {folder.path} have other features of its examples now: "
            f"restore their files, or start a new run with another {option('out')}"
        )


def open_teachers(names: Sequence[str], dataset: Dataset) -> list[FeatureExtractor]:
    """Return the frozen encoders of these names, of the kind of the data and with equal inputs."""
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


# Enough to notice other pixels under the same paths without reading all of them; chosen by hand.
_CHECKED = 64
"""Examples whose values are compared with those that the teachers saw."""


def _features(teacher: FeatureExtractor, request: Request, prepared: Prepared) -> Tensor:
    recipe, dataset = prepared.recipe, prepared.dataset
    console = request.console(prepared.ranks)
    for note in teacher.notes:
        print_line(console, note)
    if teacher.form.size is None and dataset.kind == "images":
        teacher = replace(teacher, form=replace(teacher.form, size=dataset.form.size))
    options = OpenOptions(
        max_examples=recipe.max_examples,
        seed=recipe.seed,
        seconds=recipe.seconds,
        exclude=tuple(one.path for one in dataset.skipped if one.reason == EXCLUDED),
        group=prepared.group,
    )
    data = teacher.open(request.data, options, quiet=console.quiet)
    positions = {path: row for row, path in enumerate(data.paths)}
    order = [positions.get(path, -1) for path in dataset.paths]
    if min(order) < 0:
        raise ValueError(
            f"{printable(teacher.name)} reads other examples of {printable(dataset.spec)} than the "
            "run: give data whose files can all be read"
        )
    return teacher.features(data.inputs, quiet=console.quiet, precision="32")[order].cpu()


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
