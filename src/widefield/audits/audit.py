"""The audit of an encoder: which features it learned, which it hides, and which it lost."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from widefield.audits.bounds import (
    NUM_SEEDS,
    AuditOptions,
    Bounds,
    audit_tasks,
    check_trainable,
    measure_bounds,
    probe_tasks,
    untrained_stages,
    with_stages,
)
from widefield.audits.page import audit_page
from widefield.audits.pictures import (
    image_map,
    mean_activation_rates,
    neighbor_images,
    neighbor_sounds,
    normalized_spectrum,
)
from widefield.audits.planting import (
    GRADES,
    audit_plant,
    has_enough_examples,
)
from widefield.audits.result import Audit
from widefield.audits.verdict import TaskAudit
from widefield.audits.view_effects import ViewEffects, explain
from widefield.audits.view_features import view_features
from widefield.core.errors import input_errors, option
from widefield.core.files import check_writable, checked_output
from widefield.core.hardware import choose_device, machine
from widefield.core.names import check_name
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, Kind, OnNote
from widefield.data import Dataset
from widefield.data.labels import Labels, read_labels
from widefield.data.source import Data
from widefield.data.spec import MEMORY
from widefield.inference.features import FeatureExtractor, FeatureKind, send_notes
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.overlap import apart, overlap_note
from widefield.inference.splits import (
    TrainTest,
    data_notes,
    open_train_test,
    own_group,
)
from widefield.metrics import describe
from widefield.probes.compare import IMAGE_COUNTS, cka_if_defined
from widefield.probes.compare import compare as compare_features
from widefield.probes.comparison import Comparison
from widefield.probes.verdicts import NOT_LEARNED
from widefield.report import write_page
from widefield.version import __version__

WITHOUT_LABELS: Mapping[Kind, tuple[str, ...]] = {
    "images": ("shapes", "digits"),
    "sounds": ("tone", "clicks"),
}
"""Default plants of data without labels."""
_FEW = 20
"""Test examples below which intervals of the bootstrap are unreliable."""
_FEW_GROUPS = 10
"""Test groups below which they are."""
_TOLERANCE = 1e-3
"""Largest relative difference of two calls on the same images that is due to rounding."""


@input_errors
@describe_arguments
def audit(
    encoder: EncoderSpec,
    data: Data | None = None,
    *,
    train_data: Data | None = None,
    labels: Labels | None = None,
    group: str | None = None,
    features: FeatureKind = "pooled",
    plant: Sequence[str] = (),
    compare: EncoderSpec | None = None,
    all_checkpoints: bool = False,
    max_examples: int | None = None,
    image_size: ImageSize | None = None,
    cache: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Audit:
    """Find which features an encoder learned, which pooling hides, and which are weakened or lost.

    Every task is placed between a floor (raw pixels, the same architecture untrained, or the
    commonest class, whichever is best) and a ceiling (the same architecture, trained briefly with
    the task's labels). What is not learned is searched for in earlier stages. Where there are no
    labels, features are planted into the images. Numbers are judged by R^2, and several labels an
    example by the mean average precision, in place of the accuracy.

    Args:
        data: images or sounds, with or without labels; by default those that the run was trained
            on. Probes are fitted on one part of them and scored on another.
        train_data: fit probes, floors and ceilings on these, and score on all of `data`, by default
            on the test split of the run's data.
        plant: features to plant, such as shapes,digits: shapes, digits, letters into images, tone,
            clicks, background into sounds; where there are no labels, the first two by default. In
            Python a sequence of names.
        compare: another encoder to compare with this one.
        all_checkpoints: audit every checkpoint of the run too, to find out when a feature was
            learned or lost.
        max_examples: fit on a class-balanced first N examples, and score on a quarter as many.
        cache: folder that keeps floors and ceilings; by default `~/.cache/widefield/audits`.
        out: an `.html` file for the report.
        overwrite: replace the report if it is there.
        seed: seed of plants, probes, ceilings and bootstraps.
        quiet: log nothing on stderr.

    Raises:
        ValueError: invalid input; the message names the remedy.

    Example (of minutes, in docs/tutorials/audit.ipynb)::

        found = audit("run", "photos", plant=["digits"])
        print([task.line() for task in found.tasks.values()])
    """
    out = None if out is None else checked_output(out, (".html",), overwrite=overwrite)
    if cache is not None:
        check_writable(Path(cache))
    for name in plant:
        check_name("plant", name, tuple(GRADES))
    table = None if labels is None else read_labels(labels, group=group, targets=True)
    extractor = open_encoder(encoder, features).at_size(image_size)
    folders = _checkpoints(extractor) if all_checkpoints else {}
    other = None if compare is None else open_encoder(compare, features)
    if other is not None and other.name == extractor.name:  # results are stored by name
        other = replace(other, name=f"{other.name} (compared)")
    split = open_train_test(
        extractor,
        data,
        train_data=train_data,
        labels=table,
        group=own_group(extractor, data, group, labels=table),
        max_examples=max_examples,
        seed=seed,
        quiet=quiet,
    )
    _check_data(split, plant, max_examples=max_examples, seed=seed)
    if other is not None:
        _check_same_input(other, split)
    extractors = [extractor] if other is None else [extractor, other]
    for each in extractors:
        each.check(split.train)
        check_trainable(each, split.test.images[:2])
    notes: tuple[str, ...] = ()
    if not split.tasks and not plant:
        plant, notes = _default_plants(split, seed=seed)
    notes = (
        *overlap_note(split.test, split.train),
        *(note for each in extractors for note in each.notes),
        *data_notes(split.train, split.test),
        *notes,
    )
    send_notes(notes, on_note)
    extractor = extractor.with_readout(split.train, quiet=quiet)
    other = None if other is None else other.with_readout(split.train, quiet=quiet)
    console = Console(stderr=True, quiet=quiet)
    options = AuditOptions(
        cache=None if cache is None else Path(cache),
        seed=seed,
        log=partial(console.print, highlight=False, markup=False, soft_wrap=True),
    )
    test_h = extractor.features(split.test.inputs)
    # Plants come first: most errors of an encoder occur here, before long work.
    plants, bounds = {}, []
    for name in plant:
        plants[name], middle = audit_plant(extractor, split, name, options)
        bounds.append(middle)
    own_bounds, tasks = _audit_all_tasks(extractor, split, options)
    bounds.insert(0, (split, own_bounds))
    compared, similarity, comparisons = {}, {}, {}
    if other is not None:
        compared[other.name] = _audit_all_tasks(other, split, options)[1] | {
            name: audit_plant(other, split, name, options)[0].verdict for name in plant
        }
        cka = cka_if_defined(test_h, other.features(split.test.inputs).to(test_h))
        similarity = {} if cka is None else {other.name: cka}
        found = _without_labels(other, extractor, split.test, seed=seed)
        comparisons = {} if found is None else {other.name: found}
    network = extractor.build(split.test.images[:1])
    verdicts = tasks | {name: result.verdict for name, result in plants.items()}
    result = Audit(
        encoder=extractor.name,
        settings={} if extractor.run is None else extractor.run.recipe().flat(),
        fitted_on=split.train.spec,
        scored_on=split.test.spec,
        examples=(len(split.train), len(split.test)),
        tasks=verdicts,
        explanations=_explain_all(extractor, bounds, verdicts, seed=seed),
        wide_probe=_wide_probe(encoder, data, labels, split),
        plants=plants,
        compared=compared,
        similarity=similarity,
        comparisons=comparisons,
        checkpoints={
            epoch: _audit_checkpoint(
                extractor.at_epoch(path).with_readout(split.train), bounds, seed
            )
            for epoch, path in folders.items()
        },
        features=describe(test_h, view_features(extractor, split.test, seed=seed)),
        notes=tuple(
            dict.fromkeys(
                (
                    *_copies_note(extractor, split),
                    *notes,
                    *extractor.notes,
                    *(() if other is None else other.notes),
                    *_limits(extractor, split, test_h),
                )
            )
        ),
        seed=seed,
        widefield=__version__,
        machine=machine(choose_device("auto")),
        report=out,
        firing=mean_activation_rates(network, split.test),
        spectrum=normalized_spectrum(test_h),
        neighbors=neighbor_images(split.test, test_h),
        map=image_map(split.test, test_h, seed=seed),
        kind=split.test.kind,
        sounds=neighbor_sounds(split.test, test_h),
    )
    return result if out is None else _with_page(result, out, overwrite)


def _with_page(result: Audit, out: Path, overwrite: bool) -> Audit:
    """Write the page; if that fails, keep the result and add a note."""
    try:
        write_page(audit_page(result), out, overwrite=overwrite)
    except (OSError, ValueError) as error:
        note = f"the report was not written: {error}"
        return replace(result, report=None, notes=(*result.notes, note))
    return result


def _audit_all_tasks(
    extractor: FeatureExtractor, data: TrainTest, options: AuditOptions
) -> tuple[dict[str, Bounds], dict[str, TaskAudit]]:
    """Audit every task; where a verdict is unclear, with more seeds of the untrained floor."""
    stages = untrained_stages(extractor, data, seed=options.seed)
    for num_seeds in (1, NUM_SEEDS):
        measured = measure_bounds(extractor, data, options, num_seeds=num_seeds)
        bounds = with_stages(measured, stages)
        tasks = audit_tasks(extractor, data, bounds, seed=options.seed)
        if all(task.verdict != "unclear" for task in tasks.values()):
            break
    return bounds, tasks


def _explain_all(
    extractor: FeatureExtractor,
    bounds: Sequence[tuple[TrainTest, dict[str, Bounds]]],
    verdicts: Mapping[str, TaskAudit],
    *,
    seed: int,
) -> dict[str, ViewEffects]:
    """Return which component of the views removes each feature that is not learned."""
    found: dict[str, ViewEffects] = {}
    for data, bound in bounds:
        behind = [
            task
            for task in bound
            if task in data.train.labels and verdicts[task].verdict in NOT_LEARNED
        ]
        if behind:
            found |= explain(extractor, data, behind, seed=seed)
    return found


def _wide_probe(
    encoder: EncoderSpec, data: Data | None, labels: Labels | None, split: TrainTest
) -> str | None:
    """Return the command that probes the wide readout; None for what only Python can name."""
    if labels is None:
        source, fitting = split.test.spec, ("--train-data", split.train.spec)
    else:
        source, fitting = str(data), ("--labels", str(labels))
    named = (encoder, source if data is None else data, "" if labels is None else labels)
    if source == MEMORY or not all(isinstance(value, str | Path) for value in named):
        return None
    words = ["widefield", "probe", str(encoder), source, *fitting, "--features", "wide"]
    return shlex.join(words)


def _audit_checkpoint(
    extractor: FeatureExtractor, bounds: Sequence[tuple[TrainTest, dict[str, Bounds]]], seed: int
) -> dict[str, TaskAudit]:
    """Audit the encoder of an epoch, with the same floors and ceilings as that of the run."""
    tasks: dict[str, TaskAudit] = {}
    for data, bound in bounds:
        tasks |= audit_tasks(extractor, data, bound, seed=seed)
    return tasks


def _limits(extractor: FeatureExtractor, data: TrainTest, h: Tensor) -> list[str]:
    """Return what may limit the verdicts."""
    notes = []
    if extractor.kind != "pooled":
        notes.append(f"the audited features are the {extractor.kind} ones")
    repeated = extractor.features(data.test.subset(slice(64)).inputs)
    first = h[: len(repeated)]
    atol = _TOLERANCE * float(repeated.abs().max())
    if not torch.allclose(repeated, first, rtol=_TOLERANCE, atol=atol):
        notes.append(
            "the encoder is not deterministic: its features of the same images differ between "
            "calls, and so may the verdicts of another audit"
        )
    groups = data.test.groups
    count, of, enough = len(data.test), str(data.test.kind), _FEW
    if groups is not None:
        count, of, enough = len(np.unique(groups)), "groups", _FEW_GROUPS
    if count < enough:
        notes.append(
            f"{count} test {of} are too few for reliable intervals: score on {enough} or more"
        )
    if len(data.train) < h.shape[1]:
        notes.append(
            f"{len(data.train)} training examples are fewer than the {h.shape[1]} features: more "
            "examples would make the verdicts more reliable"
        )
    return notes


def _copies_note(extractor: FeatureExtractor, data: TrainTest) -> list[str]:
    """Return a note on near-copies in both parts, with the accuracies without them."""
    found = apart(data) if data.tasks else None
    if found is None:
        return []
    results = {} if found.data is None else probe_tasks(extractor.features, found.data)
    return [
        found.note({task: (result.value, *result.interval) for task, result in results.items()})
    ]


def _checkpoints(extractor: FeatureExtractor) -> dict[int, Path]:
    """Return epoch -> folder of the encoder after it."""
    name = extractor.name
    if extractor.run is None:
        raise ValueError(
            f"{name} is not a widefield run and has no checkpoints: leave "
            f"{option('all_checkpoints')} out"
        )
    folders = sorted((extractor.run.path / "checkpoints").glob("epoch-*"))
    if not folders:
        raise ValueError(
            f"{extractor.name} has no checkpoints yet: resume its training, or leave "
            f"{option('all_checkpoints')} out"
        )
    return {int(path.name.removeprefix("epoch-")): path for path in folders}


def _default_plants(data: TrainTest, *, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the plants of data without labels, and notes on those that are left out."""
    kind = data.test.kind
    if kind not in WITHOUT_LABELS:
        raise ValueError(
            f"{data.test.spec} has no labels, and nothing is planted in {kind}: add a label "
            f"array, or give {option('labels')}"
        )
    names = WITHOUT_LABELS[kind]
    possible = tuple(name for name in names if has_enough_examples(data, name, seed=seed))
    if not possible:
        raise ValueError(
            f"{len(data.train)} {kind} to fit on are too few to plant anything in: give more, or "
            f"{option('labels')}"
        )
    return possible, tuple(
        f"too few {kind} to plant {name!r} in, so that it is left out: give more"
        for name in names
        if name not in possible
    )


def _check_data(
    data: TrainTest, plant: Sequence[str], *, max_examples: int | None, seed: int
) -> None:
    if len(data.test) < 2:
        hint = (
            "give more"
            if max_examples is None
            else f"give more, or a larger {option('max_examples')}"
        )
        raise ValueError(
            f"{len(data.test)} of the {data.test.kind} is scored, and an audit needs two: {hint}"
        )
    if plant and data.test.kind not in WITHOUT_LABELS:
        raise ValueError(f"nothing is planted in {data.test.kind}: leave {option('plant')} out")
    for name in plant:
        if name in data.tasks:
            raise ValueError(
                f"the data has a task {name!r} already, which is audited: leave "
                f"{option('plant', name)} out"
            )
        if not has_enough_examples(data, name, seed=seed):
            others = (
                f", or {option('plant', other)}"
                for other in WITHOUT_LABELS[data.test.kind]
                if other not in plant and has_enough_examples(data, other, seed=seed)
            )
            raise ValueError(
                f"too few {data.test.kind} to plant {name!r} in: give more{next(others, '')}"
            )


def _check_same_input(other: FeatureExtractor, data: TrainTest) -> None:
    """Check that another encoder takes these examples in the form in which they were opened."""
    names = (other.name, "the data of the other encoder")
    mismatch = other.form.mismatch(data.train.form, names)
    if mismatch is not None:
        raise ValueError(f"{mismatch}: audit them one by one")


def _without_labels(
    a: FeatureExtractor, b: FeatureExtractor, data: Dataset, *, seed: int
) -> Comparison | None:
    """Compare b with a without labels; None for few images, and for windows and sounds."""
    min_count, max_count = IMAGE_COUNTS["other"]
    if data.kind != "images" or len(data) < min_count:
        return None
    part = data.subset(data.spread_rows(max_count)).first_read()
    return compare_features(
        a.features, b.features, part.images, groups=part.groups, baseline="other", seed=seed
    )
