"""Python or torch below the bounds, and extras that are missing: one line with the command."""

import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import widefield
from widefield.cli.errors import line_of
from widefield.core.types import MIN_TORCH, check_torch
from widefield.data.decode.sounds import require_audio
from widefield.encoders import build_encoder, export_onnx

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_the_bounds_are_those_of_the_package() -> None:
    assert f"torch>={MIN_TORCH[0]}.{MIN_TORCH[1]}" in PROJECT["dependencies"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert not [d for d in PROJECT["dependencies"] if d.startswith("lightning")]


def test_an_old_torch_is_one_line() -> None:
    with pytest.raises(
        ImportError, match=r"torch 2\.11 or later.* pip install 'torch>=2\.11'"
    ) as old:
        check_torch("2.10.1+cu130")
    assert line_of(old.value) == str(old.value)
    assert line_of(ImportError("no module", name="timm")) is None  # the control is a bug
    check_torch(f"{MIN_TORCH[0]}.{MIN_TORCH[1]}.0")
    check_torch("3.0.0")


def test_a_command_on_an_old_torch_ends_with_that_line() -> None:
    code = (
        "import sys, torch; torch.__version__ = '2.4.0'; sys.argv[1:] = ['plan', 'photos']\n"
        "from widefield.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert re.search(r"needs torch 2\.11 or later, and this is 2\.4\.0: pip install", line)


def test_an_old_python_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    with pytest.raises(ImportError, match=r"needs Python 3\.11 or later.*: python3\.11 -m venv"):
        importlib.reload(widefield)


def test_what_needs_a_missing_package_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        return None

    encoder = build_encoder("resnet-tiny", seed=0)
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    with pytest.raises(ValueError, match=r"package soundfile: pip install 'widefield\[audio\]'"):
        require_audio()
    with pytest.raises(ValueError, match=r"package onnx: pip install 'widefield\[onnx\]'"):
        export_onnx(encoder, tmp_path / "e.onnx")


@pytest.mark.parametrize("extra", [e for e in PROJECT["optional-dependencies"] if e != "docs"])
def test_a_message_names_each_extra(extra: str) -> None:
    """The tests of what needs it show the line; `dev` is for who changes the code."""
    source = Path(widefield.__file__).parent
    named = [
        p for p in source.rglob("*.py") if f"pip install 'widefield[{extra}]'" in p.read_text()
    ]
    assert named or extra == "dev"
