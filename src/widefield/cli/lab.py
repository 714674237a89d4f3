"""`widefield lab`."""

from pathlib import Path
from typing import Literal

import yaml

from widefield.cli.output import print_json, print_line, print_table


def lab(
    name: str | None = None,
    /,
    *,
    scale: Literal["tiny", "default"] = "default",
    seed: int = 0,
    out: Path | None = None,
    json: bool = False,
    **parameters: str,
) -> None:
    """Check a claim of the papers by simulation; without a name, list the labs.

    Parameters
    ----------
    name
        Which lab.
    scale
        tiny takes seconds.
    seed
        Of every random draw.
    out
        Write the lab's figure to this .svg or .png file.
    json
        Print one JSON object.
    parameters
        Parameters of the lab, such as --noise 0.2.
    """
    from widefield.labs import CLAIMS, run_lab

    if name is None:
        if json:
            print_json(CLAIMS)
        else:
            print_table("labs", ["name", "claim"], [list(row) for row in CLAIMS.items()])
        return
    values = {key: yaml.safe_load(text) for key, text in parameters.items()}
    result = run_lab(name, scale=scale, seed=seed, **values)
    if out is not None:
        result.save(out)
    if json:
        print_json(result.to_json())
        return
    print_line(f"{result.name}: {result.verdict}")
    rows = [
        [c.claim, f"{c.measured:.4g}", str(c.predicted), "yes" if c.holds else "NO"]
        for c in result.checks
    ]
    print_table("", ["claim", "measured", "predicted", "holds"], rows)
    for note in result.notes:
        print_line(f"note: {note}")
