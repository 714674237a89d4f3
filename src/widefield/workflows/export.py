"""Write an encoder for other tools."""

from pathlib import Path

from widefield.core.files import write_atomically
from widefield.encoders import Encoder, export_onnx, save_encoder_file
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
        overwrite: replace `out` if it is there.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.
    """
    out = Path(out)
    if out.suffix not in FORMATS:
        raise ValueError(f"cannot write {out.name}: its suffix must be .safetensors or .onnx")
    if out.exists() and not overwrite:
        raise ValueError(f"{out} is already there: choose another name, or pass --overwrite")
    encoder = load(run)
    if out.suffix == ".onnx":
        write_atomically(out, lambda draft: export_onnx(encoder, draft))
        return encoder
    save_encoder_file(encoder, out)
    return encoder
