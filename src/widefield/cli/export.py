"""`widefield export`."""

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from widefield.cli.output import print_json, print_line
from widefield.cli.signature import Json, like

AUDIT = "Quote in the folder's model card what this audit found: a file of audit --json."


@like("export", without=("findings",))
def export(
    run: str,
    *,
    out: Path,
    audit: Annotated[Path | None, Parameter(help=AUDIT)] = None,
    json: Json = False,
    **arguments: Any,
) -> None:
    """Write the encoder, and print how to load it."""
    from widefield.encoders import READOUT_FILE, Encoder, Wide, needs_entry, timm_snippet
    from widefield.workflows.export import export as call

    findings: list[str] = []
    if audit is not None:
        from widefield.audits.result import read_findings

        findings = read_findings(audit)
    module = call(run, out, findings=findings, **arguments)
    encoder = module.encoder if isinstance(module, Wide) else module
    assert isinstance(encoder, Encoder)
    config = encoder.config
    if json:
        print_json({"out": str(out), "encoder": config.name, "dim": module.dim})
        return
    print_line(f"{out}: {config.name}, {module.dim} features")
    if out.suffix == ".safetensors":
        print_line("load it:\n" if config.timm is None else "load it with timm alone:\n")
        print_line(timm_snippet(config, str(out.with_suffix(""))))
    elif not out.suffix:
        name = dumps(f"local-dir:{out}")
        first = "import widefield; widefield.register_with_timm(); " * needs_entry(config)
        print_line(f"load it with {first}timm.create_model({name}, pretrained=True)")
        if (out / READOUT_FILE).exists():
            print_line(f'wide features: widefield.load({dumps(str(out))}, features="wide")')
