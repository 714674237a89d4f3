"""Features before pooling, as an encoder of its own."""

from torch import Tensor, nn

from widefield.encoders.encoder import Encoder


class Prepool(nn.Module):
    """An encoder's feature map as one row for each image, x[B, C, H, W] -> h[B, K h w].

    Where something lies in the image is still in these features; pooling averages it away.

    Example:
        >>> import torch
        >>> from widefield.encoders import build_encoder
        >>> Prepool(build_encoder("resnet-tiny", seed=0))(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 2048])

    Source: Feature Dropout (Tamkin et al. 2022), section 3.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """The feature map, flattened."""
        return self.encoder.feature_map(x).flatten(1)
