"""`widefield lab`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from widefield.cli.help import grouped
from widefield.cli.output import print_json, print_line, print_tables
from widefield.cli.process import finish_output
from widefield.core.errors import option
from widefield.report.tables import ResultTable

if TYPE_CHECKING:
    from widefield_labs.lab import Check, Lab, Result


FIGURE_SUFFIXES = (".svg", ".png")


@grouped
def lab(
    name: str | None = None,
    /,
    *,
    scale: Literal["tiny", "default"] = "default",
    seed: int = 0,
    out: Path | None = None,
    overwrite: bool = False,
    parameters: bool = False,
    json: bool = False,
    **settings: str,
) -> None:
    """Check a claim of the papers by simulation; without a name, list the labs.

    Exits with 1 where the claim fails.

    Args:
        name: Which lab to run.
        scale: How much work to do; tiny takes seconds.
        seed: Seed of all random numbers.
        out: Write the lab's figure to this .svg or .png file.
        overwrite: Replace the figure if it is there.
        parameters: List the lab's own parameters with default and range, and run nothing.
        json: Print one JSON object.
        settings: Set a parameter of the lab, such as --noise 0.2; --parameters lists them.
    """
    from widefield.core.files import checked_output
    from widefield.core.names import check_name
    from widefield_labs import claims

    work = {
        "scale": scale != "default",
        "seed": seed != 0,
        "out": out is not None,
        "overwrite": overwrite,
        **dict.fromkeys(settings, True),
    }
    known = claims()
    if name is None:
        _check_unused("without a name no lab runs: name one", work | {"parameters": parameters})
        if json:
            print_json(known)
        else:
            rows = [list(row) for row in known.items()]
            print_tables(ResultTable(title="labs", columns=["name", "claim"], rows=rows))
        return
    check_name("lab", name, tuple(known))
    if parameters:
        _check_unused("with --parameters no lab runs: leave it out", work)
    from widefield_labs import LABS

    selected = LABS[name]
    if parameters:
        _print_parameters(selected, json=json)
        return
    if out is not None:
        checked_output(out, FIGURE_SUFFIXES, overwrite=overwrite)  # before the work
    result = selected.run(scale=scale, seed=seed, **selected.parse(settings))
    if out is not None:
        result.save(out)
    if json:
        print_json(result.to_json())
    else:
        _print_result(result)
    if result.verdict == "fails":
        finish_output()
        raise SystemExit(1)


def _check_unused(reason: str, options: dict[str, bool]) -> None:
    words = [option(name) for name, is_set in options.items() if is_set]
    if words:
        raise ValueError(f"{reason}, or leave out {', '.join(words)}")


def _print_parameters(lab: "Lab", *, json: bool) -> None:
    from widefield.core.validation import allowed

    known = lab.parameters.values()
    if json:
        print_json({p.name: {"default": p.default, "range": allowed(p.annotation)} for p in known})
        return
    print_line(f"{lab.name}: {lab.claim}\n\n{lab.explanation}\n")
    rows = [[option(p.name), str(p.default), allowed(p.annotation)] for p in known]
    print_tables(ResultTable(columns=["parameter", "default", "range"], rows=rows))


def _predicted(check: "Check") -> str:
    """Return the predicted value or interval of a check in words, with its tolerance."""
    predicted = check.predicted
    low, high = predicted if isinstance(predicted, tuple) else (predicted, predicted)
    text = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
    if high == math.inf:
        text = f"at least {low:.4g}"
    if low == -math.inf:
        text = f"at most {high:.4g}"
    return f"{text} ± {check.tolerance:.2g}" if check.tolerance else text


def _print_result(result: "Result") -> None:
    print_line(f"{result.name}: {result.verdict}")
    rows = [
        [c.claim, f"{c.measured:.4g}", _predicted(c), "yes" if c.holds else "NO"]
        for c in result.checks
    ]
    columns = ["claim", "measured", "predicted", "holds"]
    print_tables(ResultTable(columns=columns, rows=rows))
    for note in result.notes:
        print_line(f"note: {note}")
