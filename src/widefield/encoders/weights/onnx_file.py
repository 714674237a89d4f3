"""ONNX files of encoders."""

import copy
import importlib.util
from pathlib import Path

import torch

from widefield.encoders.encoder import Encoder
from widefield.encoders.readout import Wide


def export_onnx(encoder: Encoder | Wide, path: str | Path) -> None:
    """Write an ONNX model: `images` [B, C, H, W] in [0, 1] -> `features` [B, D], for any B.

    Normalization is part of the model. The size of the images is that of `encoder.config`, or of
    the examples that the readout of `Wide` was fitted on.

    Raises:
        ValueError: a package that writes ONNX is not installed.
    """
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"writing ONNX needs the package {package}: pip install 'widefield[onnx]'"
            )
    frozen = copy.deepcopy(encoder).cpu().eval()
    # Tracing would treat a batch size of one as a constant.
    if isinstance(frozen, Wide):
        example = torch.zeros(2, *frozen.readout.config.input_shape)
        with torch.no_grad():
            frozen(example)  # finds the stages, which is not to be traced
    else:
        example = torch.zeros(2, frozen.config.channels, *frozen.config.image_size)
    torch.onnx.export(
        frozen,
        (example,),
        path,
        dynamo=True,
        input_names=["images"],
        output_names=["features"],
        dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
        external_data=False,
        verbose=False,
    )
