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
    own = {name: getattr(diagnose, name)(h) for name, d in DIAGNOSTICS.items() if not d.needs_views}
    assert describe(h) == own
    assert describe(Spectrum(h)) == own


def test_numbers_of_views_are_described_where_there_are_views() -> None:
    h, views = features(), features(n=40).reshape(10, 4, 7)
    seen = {
        name: getattr(diagnose, name)(views) for name, d in DIAGNOSTICS.items() if d.needs_views
    }
    described = describe(h, views)
    assert described == describe(h) | seen
    assert list(described) == list(DIAGNOSTICS)


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
    functions = {
        name: value
        for name, value in vars(diagnose).items()
        if inspect.isfunction(value)
        and value.__module__.startswith(diagnose.__name__)
        and not name.startswith("_")
    }
    del functions["spectrum_of"]  # imported for `describe`, and not public
    assert {"lidar", "describe", *DIAGNOSTICS} <= functions.keys()
    assert [name for name, f in functions.items() if ">>> " not in (f.__doc__ or "")] == []


def test_importing_the_room_loads_torch_and_little_else() -> None:
    code = (
        "import sys\nfrom widefield.metrics import *\n"
        "heavy = {'sklearn', 'scipy', 'timm', 'lightning', 'torchvision', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
