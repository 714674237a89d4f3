"""An encoder as a scikit-learn transformer: images in, features out."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from widefield.core.types import Range
from widefield.data.dataset import Dataset
from widefield.data.decode.eight_bits import parts, scale_of
from widefield.data.source import Data
from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.workflows.pretrain import pretrain

ImageInput = NDArray[Any] | Sequence[Any]
"""Arrays of images, or lists of paths or PIL images."""


class Embedder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Transforms images into the features of an encoder, alone or in a `Pipeline`.

    Without `encoder`, `fit` pretrains one on the images, without labels.

    Args:
        encoder: anything that `open_encoder` opens, or a module; None to pretrain one.
        features: pooled, wide, feature-map for those before pooling, or projected.
        out: folder of the run of `fit`; None for a temporary one.
        settings: settings of that run, as for `pretrain`, such as `{"epochs": 20}`.

    Images are a list of paths or of PIL images, or arrays as for `pretrain`: uint8 [n, H, W, C], or
    float [n, C, H, W] in [0, 1]. `get_feature_names_out` and `set_output(transform="pandas")` work
    as in scikit-learn.

    Raises:
        ValueError: from `fit` and `transform`, an input that cannot work.

    Example:
        >>> images = np.zeros((4, 8, 8, 3), dtype=np.uint8)
        >>> Embedder("pixels").fit_transform(images).shape
        (4, 192)
        >>> from PIL import Image
        >>> photos = [Image.new("RGB", (40, 30)), Image.new("L", (64, 64))]
        >>> Embedder("random").fit(photos).get_feature_names_out()[:2].tolist()
        ['embedder0', 'embedder1']
    """

    def __init__(
        self,
        encoder: EncoderSpec | None = None,
        *,
        features: FeatureKind = "pooled",
        out: str | Path | None = None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.features = features
        self.out = out
        self.settings = settings

    def fit(self, images: ImageInput, y: object = None) -> Self:
        """Open the encoder, or pretrain one on `images`; labels `y` are ignored."""
        data = _as_data(images)
        if self.encoder is not None:
            self.extractor_ = open_encoder(self.encoder, self.features)
        elif self.out is not None:
            self.extractor_ = self._pretrained(data, Path(self.out))
        else:
            with tempfile.TemporaryDirectory() as folder:
                self.extractor_ = self._pretrained(data, Path(folder) / "run")
        dataset = self.extractor_.open(data, quiet=True)
        self.extractor_.check(dataset)
        self.extractor_ = self.extractor_.with_readout(dataset)
        # Later images come to the size and the range of these.
        form = replace(dataset.form, channels=None)
        if form.black_white is None:
            form = replace(form, black_white=_scale(data, dataset))
        form = self.extractor_.form.filled(form)
        self.extractor_ = replace(self.extractor_, form=form)
        self._n_features_out = self._features(dataset.subset(slice(0, 1))).shape[1]
        return self

    def _pretrained(self, data: Data, out: Path) -> FeatureExtractor:
        settings = {"quiet": True, **(self.settings or {})}
        return open_encoder(pretrain(data, out=out, **settings).run, self.features)

    def _features(self, dataset: Dataset) -> NDArray[np.float32]:
        return self.extractor_.features(dataset.inputs, precision="32").cpu().numpy()

    def transform(self, images: ImageInput) -> NDArray[np.float32]:
        """Return the features float32 [n, D] of n images.

        Raises:
            ValueError: an image cannot be read, so that it would have no row.
        """
        check_is_fitted(self)
        dataset = self.extractor_.open(_as_data(images), quiet=True)
        if len(dataset) != len(images):
            raise ValueError(f"some images cannot be read: {'; '.join(dataset.notes)}")
        return self._features(dataset)


def _scale(data: Data, dataset: Dataset) -> Range | None:
    """Return the scale of floats that became `dataset`; None for other images."""
    if not isinstance(data, dict):
        return None
    x = np.asarray(data["x"])
    if x.dtype.kind != "f" or dataset.images.dtype != np.uint8:
        return None
    return scale_of(parts(x), trained=True)


def _as_data(images: ImageInput) -> Data:
    """Return images as data: a list, an array of paths as the list of them, or an array."""
    if isinstance(images, list | tuple):
        return images
    if getattr(images, "ndim", None) == 1:
        return list(images)
    return {"x": images}
