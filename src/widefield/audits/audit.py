"""What did this encoder learn, and what did it suppress? The whole audit behind the command."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

import widefield
from widefield.audits.advice import run_settings
from widefield.audits.bounds import (
    DRAWS,
    Bounds,
    audit_tasks,
    measure_bounds,
    refuse_untrainable,
)
from widefield.audits.page import write_audit_page
from widefield.audits.pictures import (
    image_map,
    mean_firing,
    neighbor_rows,
    neighbor_sounds,
    preferred_rows,
    spectrum_shares,
)
from widefield.audits.planting import (
    GRADES,
    PlantAudit,
    TrainAudit,
    audit_plant,
    audit_training,
    has_room,
    judge_plant,
)
from widefield.audits.result import Audit
from widefield.audits.verdict import TaskAudit
from widefield.core.files import check_writable, checked_output
from widefield.core.hardware import choose_device, machine
from widefield.core.input_errors import input_errors
from widefield.core.names import check_name
from widefield.core.types import Kind
from widefield.data.labels import Labels, read_labels
from widefield.data.open import Data
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.splits import TrainTest, leak_note, open_train_test, reading_notes
from widefield.methods import METHODS
from widefield.metrics import describe, linear_cka

WITHOUT_LABELS: Mapping[Kind, tuple[str, ...]] = {
    "images": ("shapes", "digits"),
    "sounds": ("tone", "clicks"),
}
"""What is planted where the data have no labels and no plants are named."""
_FEW = 20
"""Scored examples below which a bootstrap may be sure by chance: it sees no others than these."""
_SAME = 1e-3
"""Largest relative difference of two calls on the same images that rounding explains."""


@input_errors
def audit(
    encoder: EncoderSpec,
    data: Data | None = None,
    *,
    train_data: Data | None = None,
    labels: Labels | None = None,
    features: FeatureKind = "pooled",
    plant: Sequence[str] = (),
    compare: EncoderSpec | None = None,
    all_checkpoints: bool = False,
    pretrain_with: str | None = None,
    max_examples: int | None = None,
    cache: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    quiet: bool = False,
) -> Audit:
    """Find which features an encoder learned, weakened or suppressed, from floor to ceiling.

    Every task is placed between a floor (raw pixels, the same architecture untrained, or the
    commonest class, whichever is best) and a ceiling (the same architecture, trained briefly with
    the task's labels). Where there are no labels, features are planted into the images.

    Args:
        encoder: a run's folder, a file of weights, `timm:NAME`, `torchvision:NAME`, `random` or
            `pixels`. In Python also a module x[B, C, H, W] in [0, 1] -> h[B, D];
            it is never changed.
        data: images or sounds, with or without labels; by default those that the run was trained
            on. Probes are fitted on one part of them and scored on another.
        train_data: fit probes, floors and ceilings on these, and score on all of `data`, by default
            on the test split of the run's data.
        labels: a `.csv` file in place of the labels of the data: column path, and one for each
            task. Examples without one of them are left out. In Python also a table, as `classify`
            takes it.
        features: pooled, feature-map for those before pooling, or projected for those after the
            projector that the run was trained with.
        plant: features to plant, such as shapes,digits: shapes, digits, letters into images, tone,
            clicks, background into sounds; where there are no labels, the first two by default. In
            Python a sequence of names.
        compare: another encoder to compare with this one.
        all_checkpoints: audit every checkpoint of the run too: when was a feature learned, when
            suppressed?
        pretrain_with: also pretrain by this method, without and with each plant, which takes
            minutes.
        max_examples: fit on a class-balanced first N examples, and score on a quarter as many.
        cache: folder that keeps floors and ceilings; by default `~/.cache/widefield/audits`.
        out: an `.html` file for the report.
        overwrite: replace the report if it is there.
        seed: seed of plants, probes, ceilings and bootstraps.
        quiet: do not say what takes long.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.
    """
    out = None if out is None else checked_output(out, (".html",), overwrite=overwrite)
    if cache is not None:
        check_writable(Path(cache))
    _refuse_unknown(plant, pretrain_with)
    table = None if labels is None else read_labels(labels)
    extractor = open_encoder(encoder, features)
    folders = _checkpoints(extractor) if all_checkpoints else {}
    rival = None if compare is None else _beside(open_encoder(compare, features), extractor)
    split = open_train_test(
        extractor,
        data,
        train_data=train_data,
        labels=table,
        max_examples=max_examples,
        seed=seed,
        quiet=quiet,
    )
    _refuse_few(split, max_examples)
    _refuse_plants(plant, split, seed=seed)
    if rival is not None:
        _refuse_other_data(rival, split)
    for opened in filter(None, (extractor, rival)):
        refuse_untrainable(opened, split.test.images[:2])
    left_out: tuple[str, ...] = ()
    if not split.train.labels and not plant:
        plant, left_out = _planted_instead(split, seed=seed)
    if pretrain_with is not None and not plant:
        raise ValueError(
            f"--pretrain-with {pretrain_with} is for planted features, and none is planted here: "
            "give --plant shapes too"
        )
    auditor = _Auditor(
        extractor, split, cache=None if cache is None else Path(cache), seed=seed, quiet=quiet
    )
    for opened in filter(None, (extractor, rival)):
        opened.tell(quiet=quiet)
    test_h = extractor.features(split.test.images)
    planted = {name: auditor.plant(name, extractor) for name in plant}  # a wrong one is told first
    bounds, tasks = auditor.judged(extractor)
    plants = {name: found for name, (found, _) in planted.items()}
    compared, similarity = {}, {}
    if rival is not None:
        compared[rival.name] = auditor.compare(rival, plant)
        similarity = _similarity(rival, test_h, split)
    result = Audit(
        encoder=extractor.name,
        settings={} if extractor.run is None else run_settings(extractor.run),
        fitted_on=split.train.spec,
        scored_on=split.test.spec,
        examples=(len(split.train), len(split.test)),
        tasks=tasks | {name: found.verdict for name, found in plants.items()},
        plants=plants,
        trained=tuple(auditor.training(name, pretrain_with) for name in plant if pretrain_with),
        compared=compared,
        similarity=similarity,
        checkpoints=auditor.checkpoints(
            folders, bounds, {name: middle for name, (_, middle) in planted.items()}
        ),
        features=describe(test_h),
        notes=(
            *_notes(extractor, split, test_h, trained=pretrain_with is not None),
            *left_out,
            *(() if rival is None else rival.notes),
        ),
        seed=seed,
        widefield=widefield.__version__,
        machine=machine(choose_device("auto")),
        report=out,
        **_pictures(extractor, split, test_h, seed),
    )
    return result if out is None else _with_page(result, out, overwrite)


def _with_page(result: Audit, out: Path, overwrite: bool) -> Audit:
    """Write the page; where that fails in spite of the check before the work, keep the result."""
    try:
        write_audit_page(result, out, overwrite=overwrite)
    except (OSError, ValueError) as error:
        note = f"the report was not written: {error}"
        return replace(result, report=None, notes=(*result.notes, note))
    return result


def _refuse_unknown(plant: Sequence[str], method: str | None) -> None:
    """Refuse names of plants or of a method that do not exist."""
    for name in plant:
        check_name("plant", name, tuple(GRADES))
    if method is not None:
        check_name("method", method, METHODS)


class _Auditor:
    """What every judgement of one audit has in common."""

    def __init__(
        self,
        extractor: FeatureExtractor,
        data: TrainTest,
        *,
        cache: Path | None,
        seed: int,
        quiet: bool,
    ) -> None:
        self.extractor, self.data, self.cache, self.seed = extractor, data, cache, seed
        console = Console(stderr=True, quiet=quiet)
        self.say: Callable[[str], None] = lambda text: console.print(
            text, highlight=False, markup=False, soft_wrap=True
        )

    def judged(self, extractor: FeatureExtractor) -> tuple[Bounds, dict[str, TaskAudit]]:
        """Judge every task; where a verdict is unclear, against more draws of the untrained floor.

        Returns:
            Floors and ceilings for the architecture of `extractor`, and the verdicts.
        """
        bounds = self.bounds(extractor)
        tasks = self.judge(extractor, bounds)
        if any(task.verdict == "unclear" for task in tasks.values()):
            bounds = self.bounds(extractor, draws=DRAWS)
            tasks = self.judge(extractor, bounds)
        return bounds, tasks

    def bounds(self, extractor: FeatureExtractor, *, draws: int = 1) -> Bounds:
        """Measure floors and ceilings for the architecture of `extractor`."""
        return measure_bounds(
            extractor, self.data, cache=self.cache, seed=self.seed, say=self.say, draws=draws
        )

    def judge(self, extractor: FeatureExtractor, bounds: Bounds) -> dict[str, TaskAudit]:
        """Judge every task of the data."""
        if not self.data.train.labels:
            return {}
        return audit_tasks(extractor, self.data, bounds, seed=self.seed)

    def checkpoints(
        self, folders: Mapping[int, Path], bounds: Bounds, planted: Mapping[str, Bounds]
    ) -> dict[int, dict[str, TaskAudit]]:
        """Judge the encoder of each epoch's folder, on the tasks and on what is `planted`.

        All are held against the same floors and ceilings, so that a rise is the encoder's own.
        """
        judged = {}
        for epoch, path in folders.items():
            encoder = self.extractor.at_epoch(path)
            judged[epoch] = self.judge(encoder, bounds) | {
                name: judge_plant(encoder, self.data, name, middle, seed=self.seed)
                for name, middle in planted.items()
            }
        return judged

    def compare(self, rival: FeatureExtractor, plants: Sequence[str]) -> dict[str, TaskAudit]:
        """Judge another encoder on the same tasks and plants."""
        _, tasks = self.judged(rival)
        return tasks | {name: self.plant(name, rival)[0].verdict for name in plants}

    def plant(self, name: str, extractor: FeatureExtractor) -> tuple[PlantAudit, Bounds]:
        """Judge a planted feature at every grade; return the middle one's bounds too."""
        return audit_plant(
            extractor, self.data, name, cache=self.cache, seed=self.seed, say=self.say
        )

    def training(self, name: str, method: str) -> TrainAudit:
        """Judge what a planted feature does to a short pretraining."""
        return audit_training(
            self.extractor, self.data, name, method, cache=self.cache, seed=self.seed, say=self.say
        )


def _similarity(rival: FeatureExtractor, h: Tensor, data: TrainTest) -> dict[str, float]:
    """Return how alike the features of `rival` are to `h` (linear CKA), by its name.

    Features that do not vary are like no others: there is nothing to tell then.
    """
    theirs = rival.features(data.test.images).to(h)
    try:
        return {rival.name: linear_cka(h, theirs)}
    except ValueError:  # one of them does not vary
        return {}


def _beside(rival: FeatureExtractor, extractor: FeatureExtractor) -> FeatureExtractor:
    """Return `rival` by a name of its own: all that is told of an encoder is told by its name."""
    if rival.name != extractor.name:
        return rival
    return replace(rival, name=f"{rival.name} (compared)")


def _pictures(extractor: FeatureExtractor, data: TrainTest, h: Tensor, seed: int) -> dict[str, Any]:
    """Return the fields of `Audit` that only figures show; h [n, D] are the test features."""
    encoder = extractor.build(data.test.images[:1])
    return {
        "firing": mean_firing(encoder, data.test),
        "spectrum": spectrum_shares(h),
        "neighbors": neighbor_rows(data.test, h),
        "preferred": preferred_rows(encoder, data.test, h, seed=seed),
        "map": image_map(data.test, h, seed=seed),
        "kind": data.test.kind,
        "sounds": neighbor_sounds(data.test, h),
    }


def _notes(
    extractor: FeatureExtractor, data: TrainTest, h: Tensor, *, trained: bool
) -> tuple[str, ...]:
    """Return what the reader of the verdicts should know; `trained`: of short pretrainings too."""
    notes = [
        *leak_note(data.test, data.train),
        *extractor.notes,
        *reading_notes(data.train, data.test),
    ]
    if extractor.kind != "pooled":
        notes.append(f"the features judged are the {extractor.kind} ones")
        if trained:
            notes.append("those of the short pretrainings are the pooled ones")
    few = data.test.images[:64]
    again = extractor.features(few)
    if not torch.allclose(again, h[: len(few)], rtol=_SAME, atol=_SAME * float(again.abs().max())):
        notes.append(
            "the encoder changes its output between calls: the same images got other features, so "
            "another audit may say otherwise"
        )
    if len(data.test) < _FEW:
        notes.append(
            f"{len(data.test)} scored {data.test.kind} are few: verdicts that look sure may be "
            f"chance; score on {_FEW} or more"
        )
    if len(data.train) < h.shape[1]:
        notes.append(
            f"{len(data.train)} examples for {h.shape[1]} features: the probe has fewer examples "
            "than features; more examples would make the verdicts surer"
        )
    return tuple(notes)


def _checkpoints(extractor: FeatureExtractor) -> dict[int, Path]:
    """Return epoch -> folder of the encoder after it."""
    name = extractor.name
    if extractor.run is None:
        raise ValueError(f"{name} is no run of ours: it has no checkpoints to look back at")
    folders = sorted((extractor.run.path / "checkpoints").glob("epoch-*"))
    if not folders:
        raise ValueError(f"{name} has no checkpoints yet: train it on, or audit it as it is")
    return {int(path.name.removeprefix("epoch-")): path for path in folders}


def _planted_instead(data: TrainTest, *, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is planted into data without labels, and notes on what is left out.

    Raises:
        ValueError: nothing can be planted into windows, nor into a handful of examples.
    """
    kind = data.test.kind
    if kind not in WITHOUT_LABELS:
        raise ValueError(
            f"{data.test.spec} has no labels, and nothing is planted in {kind}: add a label "
            "array, or give labels (--labels)"
        )
    fitting = _fitting(data, seed=seed)
    if not fitting:
        raise ValueError(
            f"{len(data.train)} {kind} to fit on are too few to plant anything in: give more, or "
            "labels (--labels)"
        )
    return fitting, tuple(
        f"too few {kind} to plant {name!r} in, so that it is left out: give more"
        for name in WITHOUT_LABELS[kind]
        if name not in fitting
    )


def _fitting(data: TrainTest, *, seed: int) -> tuple[str, ...]:
    """Return the usual plants that there are enough examples for."""
    usual = WITHOUT_LABELS[data.test.kind]
    return tuple(name for name in usual if has_room(data, name, seed=seed))


def _refuse_few(data: TrainTest, max_examples: int | None) -> None:
    if len(data.test) < 2:
        remedy = "give more" if max_examples is None else "give more, or a larger --max-examples"
        raise ValueError(
            f"{len(data.test)} of the {data.test.kind} is scored, and an audit needs two: {remedy}"
        )


def _refuse_plants(plant: Sequence[str], data: TrainTest, *, seed: int) -> None:
    if plant and data.test.kind not in WITHOUT_LABELS:
        raise ValueError(f"nothing is planted in {data.test.kind}: leave --plant out")
    for name in plant:
        if name in data.train.labels:
            raise ValueError(
                f"the data has a task {name!r} already: it is judged as it is, without --plant"
            )
        if not has_room(data, name, seed=seed):
            others = [other for other in _fitting(data, seed=seed) if other not in plant]
            instead = f", or --plant {others[0]}" if others else ""
            raise ValueError(f"too few {data.test.kind} to plant {name!r} in: give more{instead}")


def _refuse_other_data(rival: FeatureExtractor, data: TrainTest) -> None:
    """Refuse an encoder that would see these examples otherwise than those it was trained on."""
    kind, rate = data.train.kind, data.train.rate
    if rival.kind_of_data not in (None, kind):
        raise ValueError(
            f"{rival.name} was trained on {rival.kind_of_data}, and these are {kind}: audit them "
            "one by one"
        )
    if rate is not None and rival.rate not in (None, rate):
        raise ValueError(
            f"{rival.name} was trained on sounds at {rival.rate:,} Hz, and these are at {rate:,}: "
            "audit them one by one"
        )
    height, width, channels = data.train.images.shape[1:]
    expected = rival.image_size or (height, width), rival.channels or channels
    if expected != ((height, width), channels):
        size = f"{expected[0][0]}x{expected[0][1]} pixels and {expected[1]} channels"
        raise ValueError(
            f"{rival.name} expects images of {size} and the other encoder {height}x{width} and "
            f"{channels}: audit them one by one"
        )
    if data.train.max_value is not None and rival.max_value not in (None, data.train.max_value):
        raise ValueError(
            f"{rival.name} was trained on images whose white is {rival.max_value:g} and these show "
            f"{data.train.max_value:g} as white: audit them one by one"
        )
