"""`widefield export`."""

from pathlib import Path

from widefield.cli.output import print_json, print_line


def export(run: str, /, *, out: Path, overwrite: bool = False, json: bool = False) -> None:
    """Write a run's encoder as .safetensors, which plain timm loads, or as .onnx.

    Parameters
    ----------
    run
        Export the encoder of this run's folder.
    out
        Write to this file; its suffix chooses the format.
    overwrite
        Replace the file if it is there.
    json
        Print one JSON object.
    """
    from widefield.encoders import timm_snippet
    from widefield.workflows.export import export as call

    encoder = call(run, out, overwrite=overwrite)
    if json:
        print_json({"out": str(out), "encoder": encoder.config.name, "dim": encoder.dim})
        return
    print_line(f"{out}: {encoder.config.name}, {encoder.dim} features")
    if out.suffix == ".safetensors":
        print_line("load it:\n" if encoder.config.timm is None else "load it with timm alone:\n")
        print_line(timm_snippet(encoder.config, out.stem))
