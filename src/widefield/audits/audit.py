"""What did this encoder learn, and what did it suppress? The whole audit behind the command."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from widefield.audits.bounds import Bounds, audit_tasks, bounds
from widefield.audits.found import Audit
from widefield.audits.page import audit_page
from widefield.audits.planting import (
    GRADES,
    PlantAudit,
    TrainAudit,
    audit_plant,
    audit_training,
)
from widefield.audits.read import Pair, open_pair
from widefield.audits.verdict import TaskAudit
from widefield.diagnose import describe, linear_cka
from widefield.methods import METHODS
from widefield.recipe import check_name
from widefield.workflows.frozen import EncoderSpec, Frozen, load, open_frozen
from widefield.workflows.pretrain import Data

WITHOUT_LABELS = ("shapes", "digits")
"""Planted where the data have no labels and nothing was asked for."""
_SAME = 1e-3
"""Largest relative difference of two calls on the same images that rounding explains."""


def audit(
    encoder: EncoderSpec,
    data: Data | None = None,
    *,
    plant: Sequence[str] = (),
    compare: EncoderSpec | None = None,
    all_checkpoints: bool = False,
    train: str | None = None,
    limit: int | None = None,
    cache: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    quiet: bool = False,
) -> Audit:
    """Say of each task whether `encoder` learned, weakened or suppressed it.

    Every task is placed between a floor (raw pixels, or the same architecture untrained,
    whichever is better) and a ceiling (the same architecture, trained briefly with the task's
    labels). Where there are no labels, features are planted into the images.

    Args:
        encoder: anything that `open_frozen` opens, or a module x[B, C, H, W] in [0, 1] -> h[B, D];
            it is never changed.
        data: a source; by default what the run was trained on. Half of it is fitted on and the
            other scored on, see `audits.read.open_pair`.
        plant: features to plant: shapes, digits, letters.
        compare: another encoder to put beside this one.
        all_checkpoints: judge every checkpoint of the run too.
        train: also pretrain by this method, without and with each plant.
        limit: a class-balanced first N to fit on, and a quarter of it to score on.
        cache: folder that keeps floors and ceilings; default: `audits` in widefield's cache.
        out: file of the report, `.html`.
        overwrite: replace `out` if it is there.
        seed: of plants, probes, ceilings and bootstraps.
        quiet: do not say what takes long.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.
    """
    out = _checked_out(out, overwrite)
    for name in plant:
        check_name("plant", name, tuple(GRADES))
    if train is not None:
        check_name("method", train, tuple(METHODS))
    frozen = open_frozen(encoder)
    earlier = _checkpoints(frozen) if all_checkpoints else {}
    rival = None if compare is None else open_frozen(compare)
    pair = open_pair(frozen, data, limit=limit, seed=seed)
    for name in plant:
        if name in pair.train.labels:
            raise ValueError(
                f"the data has a task {name!r} already: it is judged as it is, without --plant"
            )
    if not pair.train.labels and not plant:
        plant = WITHOUT_LABELS
    auditor = _Auditor(
        frozen, pair, cache=None if cache is None else Path(cache), seed=seed, quiet=quiet
    )
    test_h = frozen.features(pair.test.images)
    limits = auditor.limits(frozen)
    own = auditor.judge(frozen, limits)
    plants = {name: auditor.plant(name) for name in plant}
    compared, similarity = {}, {}
    if rival is not None:
        _refuse_other_size(rival, pair)
        compared[rival.name] = auditor.judge(rival, auditor.limits(rival))
        similarity[rival.name] = linear_cka(test_h, rival.features(pair.test.images).to(test_h))
    found = Audit(
        encoder=frozen.name,
        fitted_on=pair.train.spec,
        scored_on=pair.test.spec,
        examples=(len(pair.train), len(pair.test)),
        tasks=own | {name: one.verdict for name, one in plants.items()},
        plants=plants,
        trained=tuple(auditor.training(name, train) for name in plant) if train else (),
        compared=compared,
        similarity=similarity,
        checkpoints={
            epoch: auditor.judge(Frozen(name=frozen.name, encoder=load(path)), limits)
            for epoch, path in earlier.items()
        },
        features=describe(test_h),
        notes=_notes(frozen, pair, test_h) + (() if rival is None else rival.notes),
        seed=seed,
        report=out,
    )
    if out is not None:
        audit_page(found, frozen, pair, test_h, seed=seed).write(out, overwrite=overwrite)
    return found


class _Auditor:
    """What every judgement of one audit has in common."""

    def __init__(
        self, frozen: Frozen, pair: Pair, *, cache: Path | None, seed: int, quiet: bool
    ) -> None:
        self.frozen, self.pair, self.cache, self.seed = frozen, pair, cache, seed
        console = Console(stderr=True, quiet=quiet)
        self.say: Callable[[str], None] = lambda text: console.print(
            text, highlight=False, markup=False, soft_wrap=True
        )

    def limits(self, frozen: Frozen) -> Bounds:
        return bounds(frozen, self.pair, cache=self.cache, seed=self.seed, say=self.say)

    def judge(self, frozen: Frozen, limits: Bounds) -> dict[str, TaskAudit]:
        if not self.pair.train.labels:
            return {}
        return audit_tasks(frozen, self.pair, limits, seed=self.seed)

    def plant(self, name: str) -> PlantAudit:
        return audit_plant(
            self.frozen, self.pair, name, cache=self.cache, seed=self.seed, say=self.say
        )

    def training(self, name: str, method: str) -> TrainAudit:
        return audit_training(
            self.frozen, self.pair, name, method, cache=self.cache, seed=self.seed, say=self.say
        )


def _notes(frozen: Frozen, pair: Pair, h: Tensor) -> tuple[str, ...]:
    """What the reader of the verdicts should know."""
    notes = list(frozen.notes)
    few = pair.test.images[:64]
    again = frozen.features(few)
    if not torch.allclose(again, h[: len(few)], rtol=_SAME, atol=_SAME * float(again.abs().max())):
        notes.append(
            "the encoder changes its output between calls: the same images got other features, so "
            "another audit may say otherwise"
        )
    if len(pair.train) < h.shape[1]:
        notes.append(
            f"{len(pair.train)} examples for {h.shape[1]} features: the probe has fewer examples "
            "than features; more examples would make the verdicts surer"
        )
    return tuple(notes)


def _checkpoints(frozen: Frozen) -> dict[int, Path]:
    """Epoch -> folder of the encoder as of then."""
    if frozen.run is None:
        raise ValueError(f"{frozen.name} is no run of ours: it has no checkpoints to look back at")
    folders = sorted((frozen.run.path / "checkpoints").glob("epoch-*"))
    if not folders:
        raise ValueError(f"{frozen.name} has no checkpoints yet: train it on, or audit it as it is")
    return {int(path.name.removeprefix("epoch-")): path for path in folders}


def _checked_out(out: str | Path | None, overwrite: bool) -> Path | None:
    if out is None:
        return None
    out = Path(out)
    if out.suffix != ".html":
        raise ValueError(f"cannot write {out.name}: a report's suffix is .html")
    if out.exists() and not overwrite:
        raise ValueError(f"{out} is already there: choose another name, or pass --overwrite")
    if not out.parent.is_dir():
        raise ValueError(f"folder {out.parent} does not exist: make it first")
    return out


def _refuse_other_size(rival: Frozen, pair: Pair) -> None:
    side = pair.train.images.shape[1]
    if rival.image_size not in (None, side):
        raise ValueError(
            f"{rival.name} expects images of {rival.image_size} pixels and the other encoder "
            f"{side}: audit them one by one"
        )
