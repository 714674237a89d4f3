"""A frozen encoder, and the data opened in its form: the first steps of every call with both.

The order of all steps: open the encoder, bring it to the size, open the data (`opened`); the
call's own checks of the data; encode two examples, send the notes, and fit the wide readout
(`FeatureExtractor.ready`). So every input is checked before work that takes long.
"""

from dataclasses import replace

from widefield.core.types import ImageSize
from widefield.data import Dataset
from widefield.data.open_options import DEFAULT_OPTIONS, OpenOptions
from widefield.data.source import Data
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.splits import default_group


def opened(
    encoder: EncoderSpec,
    data: Data,
    options: OpenOptions = DEFAULT_OPTIONS,
    *,
    features: FeatureKind | None = "pooled",
    dim: int | None = None,
    image_size: ImageSize | None = None,
    quiet: bool = False,
) -> tuple[FeatureExtractor, Dataset]:
    """Open an encoder, and data in the form that it takes.

    Features of None are wide ones, or pooled ones of an encoder without stages. The group is by
    default that of the run, for its data.
    """
    extractor = open_encoder(encoder, features, dim=dim).at_size(image_size)
    group = default_group(extractor, data, options.group, labels=options.labels)
    return extractor, extractor.open(data, replace(options, group=group), quiet=quiet)
