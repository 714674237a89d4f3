"""`widefield export`."""

from json import dumps
from pathlib import Path

from widefield.cli.output import print_json, print_line


def export(
    run: str,
    /,
    *,
    out: Path,
    audit: Path | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write a run's encoder as .safetensors, which plain timm loads, .onnx, or a folder.

    Parameters
    ----------
    run
        Export the encoder of this run's folder, of a file of weights, or timm:NAME.
    out
        Write to this file, whose suffix chooses the format, or, without a suffix, to this folder,
        which timm and Hugging Face load.
    audit
        Say in the folder's model card what this audit found; it is what audit --json printed.
    overwrite
        Replace the file if it is there.
    json
        Print one JSON object.
    """
    from widefield.encoders import timm_snippet
    from widefield.workflows.export import export as call

    findings: list[str] = []
    if audit is not None:
        from widefield.audits.result import read_findings

        findings = read_findings(audit)
    encoder = call(run, out, findings=findings, overwrite=overwrite)
    if json:
        print_json({"out": str(out), "encoder": encoder.config.name, "dim": encoder.dim})
        return
    print_line(f"{out}: {encoder.config.name}, {encoder.dim} features")
    if out.suffix == ".safetensors":
        print_line("load it:\n" if encoder.config.timm is None else "load it with timm alone:\n")
        print_line(timm_snippet(encoder.config, str(out.with_suffix(""))))
    elif not out.suffix:
        name = dumps(f"local-dir:{out}")
        print_line(f"load it with timm.create_model({name}, pretrained=True)")
