"""An encoder to audit, opened with its data; every input is checked before work that takes long."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from widefield.audits.bounds import AuditOptions, check_trainable
from widefield.audits.planting import has_enough_examples
from widefield.core.errors import option
from widefield.core.types import Kind, OnNote
from widefield.inference.features import FeatureExtractor, FeatureKind, send_notes
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.overlap import overlap_note
from widefield.inference.splits import TrainTest, data_notes
from widefield.workflows.segments import with_best_weights

WITHOUT_LABELS: Mapping[Kind, tuple[str, ...]] = {
    "images": ("shapes", "digits"),
    "sounds": ("tone", "clicks"),
}
"""Default plants of data without labels."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is audited, and how."""

    extractor: FeatureExtractor
    other: FeatureExtractor | None
    """The encoder that it is compared with."""
    data: TrainTest
    plant: tuple[str, ...]
    checkpoints: Mapping[int, Path]
    """Epoch -> folder of the encoder after it."""
    wide_probe: str | None
    """Command that probes the wide readout; None for what only Python can name."""
    options: AuditOptions
    notes: tuple[str, ...] = ()

    @property
    def extractors(self) -> tuple[FeatureExtractor, ...]:
        """The encoder, and the other one if there is one."""
        return (self.extractor,) if self.other is None else (self.extractor, self.other)


def open_other(
    spec: EncoderSpec, extractor: FeatureExtractor, features: FeatureKind
) -> FeatureExtractor:
    """Open the encoder to compare with; results are stored by name, so that its name is another."""
    other = open_encoder(spec, features)
    return (
        replace(other, name=f"{other.name} (compared)") if other.name == extractor.name else other
    )


def checkpoints_of(extractor: FeatureExtractor) -> dict[int, Path]:
    """Return epoch -> folder of the encoder after it."""
    if extractor.run is None:
        raise ValueError(
            f"{extractor.name} is not a widefield run and has no checkpoints: leave "
            f"{option('all_checkpoints')} out"
        )
    folders = sorted((extractor.run.path / "checkpoints").glob("epoch-*"))
    if not folders:
        raise ValueError(
            f"{extractor.name} has no checkpoints yet: resume its training, or leave "
            f"{option('all_checkpoints')} out"
        )
    return {int(path.name.removeprefix("epoch-")): path for path in folders}


def checked(subject: Subject, *, max_examples: int | None, on_note: OnNote | None) -> Subject:
    """Check everything, send the notes, and fit the wide readouts."""
    data, options = subject.data, subject.options
    _check_data(subject, max_examples=max_examples)
    if subject.other is not None:
        _check_same_input(subject.other, data)
    for extractor in subject.extractors:
        extractor.check(data.train)
        check_trainable(extractor, data.test.images[:2])
    # Only where there is nothing else to audit.
    plant, too_few = subject.plant, tuple[str, ...]()
    if not data.tasks and not plant:
        plant, too_few = _default_plants(data, seed=options.seed)
    notes = (
        *overlap_note(data.test, data.train),
        *(note for extractor in subject.extractors for note in extractor.notes),
        *data_notes(data.train, data.test),
        *too_few,
    )
    send_notes(notes, on_note)
    # Readouts come last: fitting one takes long, and all input is checked by now.
    extractor, *others = (
        each.with_readout(data.train, quiet=options.quiet) for each in subject.extractors
    )
    (train, test), choice = with_best_weights(extractor, data.train, data.test, seed=options.seed)
    return replace(
        subject,
        extractor=extractor,
        other=next(iter(others), None),
        data=TrainTest(train=train, test=test),
        plant=plant,
        notes=(*notes, *choice),
    )


def _check_data(subject: Subject, *, max_examples: int | None) -> None:
    data, kind, seed = subject.data, subject.data.test.kind, subject.options.seed
    if len(data.test) < 2:
        hint = "" if max_examples is None else f", or a larger {option('max_examples')}"
        raise ValueError(
            f"{len(data.test)} of the {kind} is scored, and an audit needs two: give more{hint}"
        )
    groups = data.groups
    if groups is not None and len(set(groups[1].tolist())) < 2:
        hint = "" if max_examples is None else f", or a larger {option('max_examples')}"
        raise ValueError(
            f"all {kind} to score on are of one group, and an interval needs two: give more{hint}"
        )
    if subject.plant and kind not in WITHOUT_LABELS:
        raise ValueError(f"nothing is planted in {kind}: leave {option('plant')} out")
    for name in subject.plant:
        if name in data.tasks:
            raise ValueError(
                f"the data has a task {name!r} already, which is audited: leave "
                f"{option('plant', name)} out"
            )
        if not has_enough_examples(data, name, seed=seed):
            others = [other for other in WITHOUT_LABELS[kind] if other not in subject.plant]
            possible = _possible(data, others, seed=seed)
            hint = f", or {option('plant', possible[0])}" if possible else ""
            raise ValueError(f"too few {kind} to plant {name!r} in: give more{hint}")


def _default_plants(data: TrainTest, *, seed: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    kind = data.test.kind
    if kind not in WITHOUT_LABELS:
        raise ValueError(
            f"{data.test.spec} has no labels, and nothing is planted in {kind}: add a label "
            f"array, or give {option('labels')}"
        )
    names = WITHOUT_LABELS[kind]
    possible = _possible(data, names, seed=seed)
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


def _possible(data: TrainTest, plants: Iterable[str], *, seed: int) -> tuple[str, ...]:
    return tuple(name for name in plants if has_enough_examples(data, name, seed=seed))


def _check_same_input(other: FeatureExtractor, data: TrainTest) -> None:
    names = (other.name, "the data of the other encoder")
    mismatch = other.form.mismatch(data.train.form, names)
    if mismatch is not None:
        raise ValueError(f"{mismatch}: audit them one by one")
