"""ONNX files of encoders."""

import copy
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from widefield.core.form import InputSpec
from widefield.core.types import as_size
from widefield.encoders.encoder import Encoder
from widefield.encoders.preprocess import Preprocess
from widefield.encoders.readout import Wide


def export_onnx(encoder: Encoder | Wide, path: str | Path, *, preprocess: bool = False) -> None:
    """Write an ONNX model: `images` [B, C, H, W] in [0, 1] -> `features` [B, D], for any B.

    Normalization is part of the model. The size of the images is that of `encoder.config`, or of
    the examples that the readout of `Wide` was fitted on. With `preprocess` the model takes pixels
    [B, H, W, C] of any size, and resizes and cuts them itself: uint8, or float32 values of the
    files for an encoder of images of more than 8 bits. Entry `widefield` of the metadata has the
    record of preprocessing as JSON.
    """
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"writing ONNX needs the package {package}: pip install 'widefield[onnx]'"
            )
    frozen = copy.deepcopy(encoder).cpu().eval()
    inputs = input_spec(frozen)
    size = as_size(inputs.image_size)
    # Tracing would treat a batch size of one as a constant.
    example = torch.zeros(2, inputs.channels, *size)
    if isinstance(frozen, Wide):
        with torch.no_grad():
            frozen(example)  # finds the stages, which is not to be traced
    module: nn.Module = frozen
    name, dimensions = "x", {0: "batch"}
    if preprocess:
        module, name = nn.Sequential(Preprocess(inputs), frozen).eval(), "input"
        dimensions |= {1: "height", 2: "width"}
        values = torch.uint8 if inputs.black_white is None else torch.float32
        # Other sides than those of the encoder, and than each other, or they were constants.
        height, width = (2 * side + k for k, side in enumerate(size, 7))
        example = torch.zeros(2, height, width, inputs.channels, dtype=values)
    program = torch.onnx.export(
        module,
        (example,),
        dynamo=True,
        input_names=["images"],
        output_names=["features"],
        dynamic_shapes={name: {k: torch.export.Dim(axis) for k, axis in dimensions.items()}},
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props["widefield"] = json.dumps(inputs.record())
    program.save(path, external_data=False)


def input_spec(encoder: Encoder | Wide) -> InputSpec:
    """Return the record of preprocessing of an encoder, or of a wide one."""
    if isinstance(encoder, Wide):
        assert isinstance(encoder.encoder, Encoder)
        return replace(encoder.encoder.config, image_size=encoder.readout.config.input_shape[1:])
    return encoder.config
