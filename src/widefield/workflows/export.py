"""Write an encoder for other tools."""

import os
from collections.abc import Sequence
from pathlib import Path

from widefield.core.files import checked_output, write_atomically
from widefield.core.input_errors import input_errors
from widefield.encoders import (
    MODEL_FILES,
    Encoder,
    check_timm_support,
    export_onnx,
    is_config,
    save_encoder_file,
    save_model_folder,
)
from widefield.inference.open_encoder import open_encoder
from widefield.workflows.model_card import model_card

_FORMATS = (".safetensors", ".onnx")


@input_errors
def export(
    run: str | Path, out: str | Path, *, findings: Sequence[str] = (), overwrite: bool = False
) -> Encoder:
    """Write an encoder as `.safetensors`, which plain timm loads, `.onnx`, or a folder.

    The weights in `.safetensors` have timm's keys; a `.json` of the same name beside it holds the
    arguments of `timm.create_model`, and mean and standard deviation of the images. Networks that
    timm lacks, such as `alexnet`, are for `load`. `.onnx` takes images in [0, 1] and normalizes
    them itself.

    A name without suffix is a folder, with model card, for Hugging Face: `timm.create_model` loads
    it as `local-dir:FOLDER`, and as `hf-hub:NAME` once it is uploaded.

    Args:
        run: a run's folder, a file of weights, `timm:NAME` or `torchvision:NAME`. In Python also
            any other encoder with weights that `open_encoder` opens.
        out: a file, whose suffix chooses the format, or, without a suffix, a folder, which timm
            and Hugging Face load.
        findings: lines for the model card of a folder, such as the verdicts of an audit,
            `[task.line() for task in audit.tasks.values()]`.
        overwrite: replace the file if it is there, and a `.json` beside it that an export wrote.

    Raises:
        ValueError: invalid input; the message names the remedy.
    """
    if not Path(out).suffix:
        return _export_folder(run, Path(out), findings, overwrite=overwrite)
    if findings:
        raise ValueError(f"{out} has no model card for findings: export to a folder, no suffix")
    out = checked_output(out, _FORMATS, overwrite=overwrite)
    config = out.with_suffix(".json")
    if out.suffix == ".safetensors" and os.path.lexists(config):
        if not overwrite:
            raise ValueError(
                f"{config} is already there, and {out.name} needs its name: choose another one, or "
                "pass --overwrite"
            )
        if not is_config(config):
            raise ValueError(
                f"{config} does not belong to an encoder, and {out.name} needs its name: choose "
                "another one"
            )
    encoder = _encoder_of(run)
    if out.suffix == ".onnx":
        write_atomically(out, lambda path: export_onnx(encoder, path))
        return encoder
    save_encoder_file(encoder, out)
    return encoder


def _export_folder(
    run: str | Path, folder: Path, findings: Sequence[str], *, overwrite: bool
) -> Encoder:
    for name in MODEL_FILES:
        checked_output(folder / name, (Path(name).suffix,), overwrite=overwrite)
    encoder = _encoder_of(run)
    check_timm_support(encoder.config)
    save_model_folder(encoder, folder, card=model_card(encoder, run, findings))
    return encoder


def _encoder_of(name: str | Path) -> Encoder:
    """Return the encoder of that name, with its weights."""
    encoder = open_encoder(name).encoder
    if encoder is None:
        raise ValueError(
            f"{name} has no trained weights to export: give a run or a file of weights"
        )
    assert isinstance(encoder, Encoder)
    return encoder.eval()
