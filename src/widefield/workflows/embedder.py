"""An encoder as a scikit-learn transformer: images in, features out."""

import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from widefield.inference.features import FeatureExtractor, FeatureKind
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.workflows.pretrain import pretrain


class Embedder(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Transforms images into the features of an encoder, alone or in a `Pipeline`.

    Without `encoder`, `fit` pretrains one on the images, without labels.

    Args:
        encoder: anything that `open_encoder` opens, or a module; None to pretrain one.
        features: pooled, wide, feature-map for those before pooling, or projected.
        out: folder of the run of `fit`; None for a temporary one.
        settings: settings of that run, as for `pretrain`, such as `{"epochs": 20}`.

    Images are arrays as for `pretrain`: uint8 [n, H, W, C], or float [n, C, H, W] in [0, 1].

    Raises:
        ValueError: from `fit` and `transform`, an input that cannot work.

    Example:
        >>> images = np.zeros((4, 8, 8, 3), dtype=np.uint8)
        >>> Embedder("pixels").fit_transform(images).shape
        (4, 192)
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

    def fit(self, images: NDArray[Any], y: object = None) -> Self:
        """Open the encoder, or pretrain one on `images`; labels `y` are ignored."""
        if self.encoder is not None:
            self.extractor_ = open_encoder(self.encoder, self.features)
        elif self.out is not None:
            self.extractor_ = self._pretrained(images, Path(self.out))
        else:
            with tempfile.TemporaryDirectory() as folder:
                self.extractor_ = self._pretrained(images, Path(folder) / "run")
        if self.features == "wide":
            dataset = self.extractor_.open({"x": images}, quiet=True)
            self.extractor_ = self.extractor_.with_readout(dataset)
        return self

    def _pretrained(self, images: NDArray[Any], out: Path) -> FeatureExtractor:
        settings = {"quiet": True, **(self.settings or {})}
        return open_encoder(pretrain({"x": images}, out=out, **settings).run, self.features)

    def transform(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features float32 [n, D] of n images."""
        check_is_fitted(self)
        dataset = self.extractor_.open({"x": images}, quiet=True)
        return self.extractor_.features(dataset.inputs, precision="32").cpu().numpy()
