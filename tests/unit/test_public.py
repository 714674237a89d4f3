"""What a user sees of the package: names, types, and how fast they come."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

import widefield
from widefield import losses, methods, views

SOURCE = Path(widefield.__file__)


def test_every_public_name_is_there_and_typed() -> None:
    """The names that are loaded lazily are those that type checkers see."""
    stub = ast.parse(SOURCE.with_suffix(".pyi").read_text())
    seen = {alias.asname for node in stub.body for alias in node.names}  # type: ignore[attr-defined]
    assert seen == set(widefield.__all__)
    assert all(getattr(widefield, name) is not None for name in widefield.__all__)
    assert dir(widefield) == sorted(widefield.__all__)


def test_a_wrong_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="attribute pretain"):
        _ = widefield.pretain


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sys, widefield, widefield.cli; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_reading_commands_do_not_wait_for_what_they_do_not_use() -> None:
    """Pictures, maps and loggers are imported where they are used."""
    used = "widefield.embed, widefield.probe, widefield.classify, widefield.pretrain"
    heavy = {"lightning", "matplotlib", "openTSNE", "torchmetrics"}
    code = f"import sys, widefield; {used}; assert not {heavy} & sys.modules.keys(), sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_modules_do_not_depend_on_what_was_used_before() -> None:
    code = "import widefield; widefield.metrics.health; widefield.losses.nt_xent"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", [losses, methods, views])
def test_public_modules_have_a_forward(module: object) -> None:
    for name in dir(module):
        value = getattr(module, name)
        if inspect.isclass(value) and issubclass(value, nn.Module):
            assert value.forward is not nn.Module.forward, name
