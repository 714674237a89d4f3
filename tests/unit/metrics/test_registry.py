"""The registry of diagnostics: one spectrum serves all and each is explained."""

import inspect
import subprocess
import sys

import pytest
import torch

from widefield import metrics as diagnose
from widefield.metrics import DIAGNOSTICS, Spectrum, describe
from widefield.metrics import spectrum as spectra


def features(n: int = 60, dim: int = 7) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(0)) + 0.5


def test_a_description_is_each_diagnostic_by_itself() -> None:
    h = features()
    assert describe(h) == {name: getattr(diagnose, name)(h) for name in DIAGNOSTICS}
    assert describe(Spectrum(h)) == describe(h)


def test_a_description_decomposes_the_features_twice_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once centered and once as they are, however many diagnostics there are."""
    calls = []
    decompose = spectra._singular_values
    monkeypatch.setattr(spectra, "_singular_values", lambda h: calls.append(h) or decompose(h))
    describe(features())
    assert len(calls) == 2


def test_what_is_not_defined_is_none() -> None:
    line = torch.arange(10.0)[:, None].expand(10, 3)
    assert describe(line)["alpha_req"] is None
    assert describe(line)["effective_rank"] == pytest.approx(1)
    with pytest.raises(ValueError, match="NaN"):
        describe(torch.full((4, 2), torch.nan))


def test_every_diagnostic_says_what_it_means() -> None:
    for name, entry in DIAGNOSTICS.items():
        assert len(entry.meaning.split()) >= 4, name
        assert not entry.meaning.endswith("."), name


def test_every_public_function_shows_an_example() -> None:
    functions = {name: getattr(diagnose, name) for name in diagnose.__all__}
    without = [
        name
        for name, function in functions.items()
        if inspect.isfunction(function) and ">>> " not in (function.__doc__ or "")
    ]
    assert without == []


def test_importing_the_room_loads_torch_and_little_else() -> None:
    code = (
        "import sys\nfrom widefield.metrics import *\n"
        "heavy = {'sklearn', 'scipy', 'timm', 'lightning', 'torchvision', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
