"""Write an encoder for other tools."""

import os
from pathlib import Path

from widefield.core.files import checked_output, write_atomically
from widefield.encoders import Encoder, export_onnx, is_config, save_encoder_file
from widefield.workflows.extractor import load

FORMATS = (".safetensors", ".onnx")


def export(run: str | Path, out: str | Path, *, overwrite: bool = False) -> Encoder:
    """Write a run's encoder as `.safetensors`, which plain timm loads, or as `.onnx`.

    The weights in `.safetensors` have timm's own keys; a `.json` of the same name beside it holds
    what `timm.create_model` needs, and mean and deviation of the images. Networks that timm lacks,
    such as `alexnet`, are for `load`. `.onnx` takes images in [0, 1] and normalises them itself.

    Args:
        run: a run's folder, or a file that this call wrote.
        out: the file to write; its suffix chooses the format.
        overwrite: replace `out` if it is there, and the `.json` beside it if an export wrote it.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.
    """
    out = checked_output(out, FORMATS, overwrite=overwrite)
    beside = out.with_suffix(".json")
    if out.suffix == ".safetensors" and os.path.lexists(beside):
        if not overwrite:
            raise ValueError(
                f"{beside} is already there, and {out.name} needs its name: choose another one, or "
                "pass --overwrite"
            )
        if not is_config(beside):
            raise ValueError(
                f"{beside} is no encoder's, and {out.name} needs its name: choose another one"
            )
    encoder = load(run)
    if out.suffix == ".onnx":
        write_atomically(out, lambda draft: export_onnx(encoder, draft))
        return encoder
    save_encoder_file(encoder, out)
    return encoder
