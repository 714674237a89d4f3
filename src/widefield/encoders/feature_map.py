"""An encoder whose features are another one's feature map."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from widefield.encoders.encoder import Encoder


class FeatureMap(nn.Module):
    """An encoder without its pooling: x[B, C, H, W] -> h[B, K h w], the feature map flattened.

    These features keep positions, over which pooling averages.

    Example:
        >>> import torch
        >>> from widefield.encoders import build_encoder
        >>> FeatureMap(build_encoder("resnet-tiny", seed=0))(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 2048])

    Source: Feature Dropout (Tamkin et al. 2022), section 3.2.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Call `forward`, with its types."""
            ...

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature maps of images x[B, C, H, W], one row for each image."""
        return self.encoder.feature_map(x).flatten(1)
