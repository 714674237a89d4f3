"""Write an encoder for other tools."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from widefield.core.errors import input_errors, option
from widefield.core.files import check_folder_name, checked_output, write_atomically
from widefield.core.names import check_name
from widefield.encoders import (
    ENCODER_FILE,
    MODEL_FILES,
    READOUT_FILE,
    Encoder,
    Readout,
    Wide,
    check_timm_support,
    export_onnx,
    is_config,
    save_encoder_file,
    save_model_folder,
)
from widefield.inference.open_encoder import open_encoder
from widefield.methods.projector_file import PROJECTOR_FILE
from widefield.workflows.model_card import model_card

_FORMATS = (".safetensors", ".onnx")
_ENCODER_FILES = (READOUT_FILE, PROJECTOR_FILE)
"""Files of a folder that fit its encoder alone."""


@input_errors
def export(
    run: str | Path,
    out: str | Path,
    *,
    features: Literal["pooled", "wide"] = "pooled",
    preprocess: bool = False,
    findings: Sequence[str] = (),
    overwrite: bool = False,
) -> Encoder | Wide:
    """Write an encoder as `.safetensors`, which plain timm loads, `.onnx`, or a folder.

    The weights in `.safetensors` have timm's keys; a `.json` of the same name beside it holds the
    arguments of `timm.create_model`, and the record of preprocessing: size, cut, interpolation,
    mean, standard deviation, and black and white of images of more than 8 bits. Networks that timm
    lacks, such as `alexnet`, are for `load`. `.onnx` takes images in [0, 1] and normalizes them
    itself; it has the record in its metadata.

    A name without suffix is a folder, with model card, for Hugging Face: `timm.create_model` loads
    it as `local-dir:FOLDER`, and as `hf-hub:NAME` once it is uploaded; ResNets with the small stem
    and networks that timm lacks once `register_with_timm()` was called. The wide readout of a run
    is copied into it, for `load(FOLDER, features="wide")`.

    Args:
        run: a run's folder, a file of weights, `timm:NAME` or `torchvision:NAME`. In Python also
            any other encoder with weights that `open_encoder` opens.
        out: a file, whose suffix chooses the format, or, without a suffix, a folder, which timm
            and Hugging Face load.
        features: features of the `.onnx` file, pooled, or wide for these and directions of earlier
            stages and of the input. A folder has both, and wide demands that there is a readout.
        preprocess: let the `.onnx` file take pixels of images of any size, [B, H, W, C], and
            resize and cut them as `embed` does: uint8, or float32 values of the files if the
            encoder is one of images of more than 8 bits. Color profiles, orientation and
            transparency are for the caller.
        findings: lines for the model card of a folder, such as the verdicts of an audit,
            `[task.line() for task in audit.tasks.values()]`.
        overwrite: replace the file if it is there, and a `.json` beside it that an export wrote.

    Raises:
        ValueError: invalid input; the message names the remedy.

    Example:
        >>> import tempfile
        >>> from widefield.encoders import build_encoder, save_encoder
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_encoder(build_encoder("resnet-tiny", seed=0), Path(folder) / "run")
        ...     export(Path(folder) / "run", Path(folder) / "encoder.safetensors").dim
        128
    """
    check_name("features", features, ("pooled", "wide"))
    if preprocess and Path(out).suffix != ".onnx":
        raise ValueError(f"preprocess is for a .onnx file, and {out} is none: leave it out")
    if not Path(out).suffix:
        check_folder_name(out)
        return _export_folder(run, Path(out), features, findings, overwrite=overwrite)
    if findings:
        raise ValueError(f"{out} has no model card for findings: export to a folder, no suffix")
    out = checked_output(out, _FORMATS, overwrite=overwrite)
    if out.suffix == ".safetensors" and features == "wide":
        raise ValueError(
            f"{out.name} would have the weights of the encoder alone: export wide features to a "
            ".onnx file, or to a folder, no suffix"
        )
    config = out.with_suffix(".json")
    if out.suffix == ".safetensors" and os.path.lexists(config):
        if not overwrite:
            raise ValueError(
                f"{config} is already there, and {out.name} needs its name: choose another one, or "
                f"pass {option('overwrite', True)}"
            )
        if not is_config(config):
            raise ValueError(
                f"{config} does not belong to an encoder, and {out.name} needs its name: choose "
                "another one"
            )
    is_of_folder = out.name in (ENCODER_FILE, "model.safetensors")
    if is_of_folder and any(map(os.path.lexists, map(out.with_name, _ENCODER_FILES))):
        raise ValueError(
            f"{out} has a readout or projector beside it, which would not fit another encoder: "
            "choose another name"
        )
    encoder, readout = _open(run)
    if out.suffix == ".onnx":
        module = _selected(run, encoder, readout, features)
        if preprocess and encoder.config.kind != "images":
            raise ValueError(
                f"{run} was trained on {encoder.config.kind}, which are not resized: leave "
                "preprocess out"
            )
        write_atomically(out, lambda path: export_onnx(module, path, preprocess=preprocess))
        return module
    save_encoder_file(encoder, out)
    return encoder


def _export_folder(
    run: str | Path, folder: Path, features: str, findings: Sequence[str], *, overwrite: bool
) -> Encoder | Wide:
    for name in MODEL_FILES:
        checked_output(folder / name, (Path(name).suffix,), overwrite=overwrite)
    encoder, readout = _open(run)
    check_timm_support(encoder.config)
    module = _selected(run, encoder, readout, features)
    card = model_card(encoder, run, findings, readout=readout)
    save_model_folder(encoder, folder, card=card, readout=readout)
    return module


def _open(name: str | Path) -> tuple[Encoder, Readout | None]:
    extractor = open_encoder(name)
    encoder = extractor.encoder
    if encoder is None:
        raise ValueError(
            f"{name} has no trained weights to export: give a run or a file of weights"
        )
    assert isinstance(encoder, Encoder)
    return encoder.eval(), extractor.readout


def _selected(
    name: str | Path, encoder: Encoder, readout: Readout | None, features: str
) -> Encoder | Wide:
    if features == "pooled":
        return encoder
    if readout is None:
        raise ValueError(
            f"{name} has no readout for wide features, as a finished run has: resume the run to "
            "its end, or export pooled features"
        )
    return Wide(encoder, readout).eval()
