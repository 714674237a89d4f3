"""A frozen encoder, and the data opened in its form: the first steps of every call with both.

The order of all steps: open the encoder, bring it to the size, open the data (`opened`); the
call's own checks of the data; encode two examples, send the notes, and fit the wide readout
(`FeatureExtractor.ready`). So every input is checked before work that takes long.
"""

from typing import TypedDict, Unpack

from widefield.core.types import ImageSize
from widefield.data import Dataset
from widefield.data.decisions import read_excluded
from widefield.data.labels import Labels, LabelTable
from widefield.data.source import Data
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.splits import own_group


class ReadArguments(TypedDict, total=False):
    """Which examples of the data are read, and what belongs to them.

    `core/shared_arguments.py` describes those that a user gives.
    """

    labels: LabelTable | None
    group: str | None
    exclude: Labels | None
    max_examples: int | None
    unlabeled: bool
    """Whether examples without a label are read too."""


def opened(
    encoder: EncoderSpec,
    data: Data,
    *,
    features: FeatureKind | None = "pooled",
    dim: int | None = None,
    image_size: ImageSize | None = None,
    quiet: bool = False,
    **read: Unpack[ReadArguments],
) -> tuple[FeatureExtractor, Dataset]:
    """Open an encoder, and data in the form that it takes.

    Features of None are wide ones, or pooled ones of an encoder without stages. The group is by
    default that of the run, for its data.
    """
    excluded = read_excluded(read.get("exclude"))
    extractor = open_encoder(encoder, features, dim=dim).at_size(image_size)
    labels = read.get("labels")
    dataset = extractor.open(
        data,
        labels=labels,
        group=own_group(extractor, data, read.get("group"), labels=labels),
        exclude=excluded,
        unlabeled=read.get("unlabeled", False),
        max_examples=read.get("max_examples"),
        quiet=quiet,
    )
    return extractor, dataset
