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


NETWORK_OF_THIS_LIBRARY = """
import sys, numpy, widefield
{widefield.embed, widefield.probe, widefield.classify, widefield.explore, widefield.pretrain}
heavy = {"lightning", "openTSNE", "timm", "torchvision"}
found = (heavy | {"matplotlib", "tensorboard"}) & {*sys.modules}
assert not found, f"imported before they are used: {found}"
x = numpy.random.default_rng(0).integers(0, 256, (32, 16, 16, 3), dtype=numpy.uint8)
run = sys.argv[1]
widefield.pretrain(x, out=run, method="simclr", encoder="dictionary-tiny", epochs=1)
widefield.embed(run, x)
assert not heavy & {*sys.modules}, f"not used: {heavy & {*sys.modules}}"
"""


def test_a_command_does_not_wait_for_what_it_does_not_use(tmp_path: Path) -> None:
    """Pictures, maps, loggers and other networks are imported where they are used."""
    arguments = [sys.executable, "-c", NETWORK_OF_THIS_LIBRARY, str(tmp_path / "run")]
    subprocess.run(arguments, check=True)


def test_modules_do_not_depend_on_what_was_used_before() -> None:
    code = "import widefield; widefield.metrics.health; widefield.losses.nt_xent"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", [losses, methods, views])
def test_public_modules_have_a_forward(module: object) -> None:
    for name in dir(module):
        value = getattr(module, name)
        if inspect.isclass(value) and issubclass(value, nn.Module):
            assert value.forward is not nn.Module.forward, name
