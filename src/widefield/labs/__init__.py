"""Theory labs: one file per claim, the prediction beside the measurement.

A lab imports the rest of the library and is never imported by it. Each file exposes
`run(*, scale="default", seed=0, ...) -> Result`; a file is imported when its lab is run.
"""

from importlib import import_module
from inspect import signature
from typing import Any

from widefield.labs.result import Check, Result
from widefield.recipe import check_name

LABS: dict[str, str] = {
    "noise-helps": "widefield.labs.noise_helps",
    "downstream-angle": "widefield.labs.downstream_angle",
    "collision": "widefield.labs.collision",
    "sparse-coding": "widefield.labs.sparse_coding",
    "winner-takes-all": "widefield.labs.winner_takes_all",
    "local-optima": "widefield.labs.local_optima",
    "power-iteration": "widefield.labs.power_iteration",
    "roughness": "widefield.labs.roughness",
    "contrastive-covariance": "widefield.labs.contrastive_covariance",
    "diet-is-spectral": "widefield.labs.diet_is_spectral",
    "diet-toy": "widefield.labs.diet_toy",
    "multistep": "widefield.labs.multistep",
}
"""Lab -> the module that runs it."""

CLAIMS: dict[str, str] = {
    "noise-helps": "Noise on dominant features speeds the learning of the weak one.",
    "downstream-angle": "The downstream error of a learned direction is its angle over pi.",
    "collision": "Repeated augmentation sends images of different classes to one image.",
    "sparse-coding": "Masked views turn dense noise into singleton features; plain pairs do not.",
    "winner-takes-all": "Every row of a linear net learns the same feature; ReLU rows share them.",
    "local-optima": "Each latent feature is its own maximal eigenvector, below a critical rate.",
    "power-iteration": "Power iteration converges to a point near each latent feature.",
    "roughness": "A local optimum is stable while its eigengap exceeds the local roughness.",
    "contrastive-covariance": "InfoNCE ascends the trace of a contrastive covariance.",
    "diet-is-spectral": "DIET and the spectral contrastive loss share their global minimisers.",
    "diet-toy": "Plain DIET learns the less noisy feature only; normalised DIET learns both.",
    "multistep": "One closed form replaces every optimiser step that a row of the head missed.",
}
"""Lab -> its claim in one line."""


def run_lab(name: str, **arguments: Any) -> Result:
    """Run the lab `name` with the arguments of its own `run`.

    Raises ValueError for an unknown name or an argument out of range.

    Example:
        >>> run_lab("multistep", scale="tiny").verdict
        'holds'
    """
    check_name("lab", name, tuple(LABS))
    run = import_module(LABS[name]).run
    for argument in arguments:
        check_name(f"parameter of {name}", argument, tuple(signature(run).parameters))
    result = run(**arguments)
    assert isinstance(result, Result)
    return result


__all__ = ["CLAIMS", "LABS", "Check", "Result", "run_lab"]
