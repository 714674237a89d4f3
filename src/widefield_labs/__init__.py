"""Theory labs: one file per claim, the prediction beside the measurement.

A lab imports the rest of the library and is never imported by it. Each lab's file begins with its
claim, and has the functions `measure`, `check`, `notes` and `draw`. Labs share `one_layer` and
`pair_weights`; no lab imports another.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widefield_labs.lab import Lab

MODULES = (
    "noise_helps",
    "downstream_angle",
    "collision",
    "sparse_coding",
    "winner_takes_all",
    "local_optima",
    "power_iteration",
    "roughness",
    "contrastive_covariance",
    "diet_is_spectral",
    "diet_toy",
    "multistep",
)
"""The labs' files; a lab has the name of its file, with hyphens."""

LABS: "dict[str, Lab]"
"""Each lab by name; its first use imports the labs, and with them torch."""


def __getattr__(name: str) -> Any:
    if name == "LABS":
        return _labs()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _labs() -> "dict[str, Lab]":
    from widefield_labs.lab import Lab

    labs = [Lab.of(import_module(f"{__name__}.{module}")) for module in MODULES]
    return {lab.name: lab for lab in labs}


def claims() -> dict[str, str]:
    """Return each lab's claim by name.

    The claim is the first line of the lab's file; no lab is imported, so that a list is quick.
    """
    files = {module: Path(__file__).with_name(f"{module}.py") for module in MODULES}
    return {
        module.replace("_", "-"): file.read_text().splitlines()[0].strip('"')
        for module, file in files.items()
    }


__all__ = ["LABS", "claims"]
