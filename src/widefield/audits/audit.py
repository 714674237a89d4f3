"""The audit of an encoder: which features it learned, which it hides, and which it lost.

1. Open encoders and data, and check every input (`opening`).
2. Measure floors and ceilings, and judge every task and planted feature by them (`tasks`,
   `planting`).
3. Search the cause of what is not learned in the views (`view_effects`).
4. Judge the other encoder and the checkpoints by the same floors and ceilings.
5. Describe the features by diagnostics and pictures (`pictures`), and write the page (`page`).
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widefield.audits.bounds import AuditOptions, probe_tasks
from widefield.audits.opening import Subject, checked, checkpoints_of, open_other
from widefield.audits.page import audit_page
from widefield.audits.pictures import draw_pictures, view_features
from widefield.audits.planting import GRADES, audit_plant
from widefield.audits.result import Audit
from widefield.audits.tasks import Reference, audit_grades, audit_tasks
from widefield.audits.verdict import TaskAudit
from widefield.audits.view_effects import ViewEffects, explain
from widefield.core.errors import input_errors
from widefield.core.files import check_writable, checked_output
from widefield.core.hardware import choose_device, machine
from widefield.core.names import check_name
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote
from widefield.data.labels import Labels, read_labels
from widefield.data.source import Data
from widefield.data.spec import MEMORY
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.overlap import copy_note
from widefield.inference.splits import TrainTest, open_train_test
from widefield.metrics import describe
from widefield.probes.compare import IMAGE_COUNTS, cka_if_defined, compare
from widefield.probes.comparison import Comparison
from widefield.probes.verdicts import NOT_LEARNED
from widefield.report import write_page
from widefield.version import __version__

# Chosen by hand, as the number of groups. They limit a note, and no verdict.
_FEW = 20
"""Test examples below which intervals of the bootstrap are unreliable."""
_FEW_GROUPS = 10
"""Test groups below which they are."""
# Chosen by hand. The second call has a batch of another size, for which sums are rounded otherwise.
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

    Example (of minutes, in docs/tutorials/audit.ipynb)::

        found = audit("run", "photos", plant=["digits"])
        print([task.line() for task in found.tasks.values()])
    """
    out = None if out is None else checked_output(out, (".html",), overwrite=overwrite)
    if cache is not None:
        check_writable(Path(cache))
    # The order is that of cost: what needs no file first, then encoders, then data.
    for name in plant:
        check_name("plant", name, tuple(GRADES))
    table = None if labels is None else read_labels(labels, group=group, targets=True)
    extractor = open_encoder(encoder, features).at_size(image_size)
    checkpoints = checkpoints_of(extractor) if all_checkpoints else {}
    other = None if compare is None else open_other(compare, extractor, features)
    split = open_train_test(
        extractor,
        data,
        train_data=train_data,
        labels=table,
        group=group,
        max_examples=max_examples,
        seed=seed,
        quiet=quiet,
    )
    subject = Subject(
        extractor=extractor,
        other=other,
        data=split,
        plant=tuple(plant),
        checkpoints=checkpoints,
        wide_probe=_wide_probe(encoder, data, labels, split),
        options=AuditOptions(cache=None if cache is None else Path(cache), seed=seed, quiet=quiet),
    )
    result = _run_audit(checked(subject, max_examples=max_examples, on_note=on_note))
    return result if out is None else _with_page(result, out, overwrite)


def _run_audit(subject: Subject) -> Audit:
    extractor, data, options = subject.extractor, subject.data, subject.options
    h = extractor.features(data.test.inputs)
    # Plants come first: most errors of an encoder occur here, before long work.
    planted = {name: audit_plant(extractor, data, name, options) for name in subject.plant}
    ((reference, tasks),) = audit_grades(extractor, [data], options)
    references = [reference, *(middle for _, middle in planted.values())]
    plants = {name: found for name, (found, _) in planted.items()}
    tasks |= {name: found.verdict for name, found in plants.items()}
    copy_notes = copy_note(data, partial(probe_tasks, extractor.features)) if data.tasks else []
    compared, similarity, comparisons = _compare_with_other(subject, h)
    # Each note once: the readouts may have added some.
    readout_notes = [note for each in subject.extractors for note in each.notes]
    limits = _limits(extractor, data, h)
    return Audit(
        encoder=extractor.name,
        settings={} if extractor.run is None else extractor.run.recipe().flat(),
        fitted_on=data.train.spec,
        scored_on=data.test.spec,
        examples=(len(data.train), len(data.test)),
        kind=data.test.kind,
        tasks=tasks,
        plants=plants,
        explanations=_explanations(extractor, references, tasks, seed=options.seed),
        wide_probe=subject.wide_probe,
        compared=compared,
        similarity=similarity,
        comparisons=comparisons,
        checkpoints=_over_training(subject, references),
        features=describe(h, view_features(extractor, data.test, seed=options.seed)),
        notes=tuple(dict.fromkeys((*copy_notes, *subject.notes, *readout_notes, *limits))),
        seed=options.seed,
        widefield=__version__,
        machine=machine(choose_device("auto")),
        pictures=draw_pictures(extractor, data.test, h, seed=options.seed),
        report=None,
    )


def _with_page(result: Audit, out: Path, overwrite: bool) -> Audit:
    """Write the page; if that fails, keep the result and add a note."""
    try:
        write_page(audit_page(result), out, overwrite=overwrite)
    except (OSError, ValueError) as error:
        note = f"the report was not written: {error}"
        return replace(result, report=None, notes=(*result.notes, note))
    return replace(result, report=out)


def _explanations(
    extractor: FeatureExtractor,
    references: Sequence[Reference],
    verdicts: Mapping[str, TaskAudit],
    *,
    seed: int,
) -> dict[str, ViewEffects]:
    found: dict[str, ViewEffects] = {}
    for reference in references:
        classes = reference.data.train.labels
        behind = [task for task in classes if verdicts[task].verdict in NOT_LEARNED]
        if behind:
            found |= explain(extractor, reference.data, behind, seed=seed)
    return found


def _over_training(
    subject: Subject, references: Sequence[Reference]
) -> dict[int, dict[str, TaskAudit]]:
    found: dict[int, dict[str, TaskAudit]] = {}
    for epoch, folder in subject.checkpoints.items():
        extractor = subject.extractor.at_epoch(folder).with_readout(subject.data.train)
        found[epoch] = {}
        for reference in references:
            found[epoch] |= audit_tasks(extractor, reference, seed=subject.options.seed)
    return found


def _compare_with_other(
    subject: Subject, h: Tensor
) -> tuple[dict[str, dict[str, TaskAudit]], dict[str, float], dict[str, Comparison]]:
    """Return by its name the verdicts on the other encoder, the linear CKA, and a comparison.

    The architecture, and so the floors, may be another. CKA is left out where it is not defined,
    and the comparison without labels for few images, windows and sounds.
    """
    other, data = subject.other, subject.data
    if other is None:
        return {}, {}, {}
    ((_, tasks),) = audit_grades(other, [data], subject.options)
    for name in subject.plant:
        tasks[name] = audit_plant(other, data, name, subject.options)[0].verdict
    cka = cka_if_defined(h, other.features(data.test.inputs).to(h))
    similarity = {} if cka is None else {other.name: cka}
    min_count, max_count = IMAGE_COUNTS["other"]
    if data.test.kind != "images" or len(data.test) < min_count:
        return {other.name: tasks}, similarity, {}
    part = data.test.subset(data.test.spread_rows(max_count)).first_read()
    found = compare(
        other.features,
        subject.extractor.features,
        part.images,
        groups=part.groups,
        baseline="other",
        seed=subject.options.seed,
    )
    return {other.name: tasks}, similarity, {other.name: found}


def _wide_probe(
    encoder: EncoderSpec, data: Data | None, labels: Labels | None, split: TrainTest
) -> str | None:
    """Return the command that probes the wide readout; None for what only Python can name."""
    specs = (split.test.spec, split.train.spec)
    if MEMORY in specs or not isinstance(encoder, str | Path):
        return None
    if labels is None:
        source = [specs[0], "--train-data", specs[1]]
    elif isinstance(labels, str | Path):
        source = [*([] if data is None else [str(data)]), "--labels", str(labels)]
    else:
        return None
    return shlex.join(["widefield", "probe", str(encoder), *source, "--features", "wide"])


def _limits(extractor: FeatureExtractor, data: TrainTest, h: Tensor) -> list[str]:
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
