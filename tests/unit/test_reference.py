"""The public names are those of the committed list, and each is documented."""

import inspect
from importlib import import_module
from typing import Any

import pytest
from torch import Tensor

import api
from widefield import methods
from widefield.methods import MethodConfig


def documented() -> list[tuple[str, Any]]:
    """Return the public classes and functions with their names."""
    found = ((name, value_of(name)) for name in api.promised_names())
    return [(name, value) for name, value in found if inspect.isclass(value) or callable(value)]


def value_of(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return getattr(import_module(module), last)


def test_the_public_names_are_those_of_the_list() -> None:
    """New ones are added by `make tables`; none leaves without a version of warning."""
    gone = {*api.promised_names()} - {*api.public_names()}
    assert not gone, f"docs/versions.md says how a public name leaves: {sorted(gone)}"
    new = {*api.public_names()} - {*api.promised_names()}
    assert not new, f"run `make tables` and commit docs/api.txt: {sorted(new)}"


def documentation(value: Any) -> str:
    """Return the docstring; settings of a method are shown in the example of the method."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and issubclass(value, MethodConfig):
        method = getattr(methods, value.__name__.removesuffix("Config"))
        text += inspect.getdoc(method) or ""
    return text


@pytest.mark.parametrize(("name", "value"), documented(), ids=[name for name, _ in documented()])
def test_a_public_name_has_an_example_errors_and_shapes(name: str, value: Any) -> None:
    text = documentation(value)
    example = text.partition("Example")[2]
    assert ">>> " in example or "::\n" in example, f"{name} has no example"
    own = value.__init__ if inspect.isclass(value) else inspect.unwrap(value)
    is_written = inspect.isfunction(own) and own.__code__.co_filename != "<string>"
    code = inspect.getsource(own) if is_written else ""
    if "raise ValueError" in code:
        assert "Raises" in text, f"{name} raises ValueError and does not say so"
    if inspect.isfunction(value) and takes_a_tensor(value):
        assert "[" in text.partition("Example")[0], f"{name} has no shapes"


def takes_a_tensor(function: Any) -> bool:
    kinds = inspect.get_annotations(inspect.unwrap(function), eval_str=True).values()
    return any(getattr(kind, "__origin__", kind) is Tensor for kind in kinds)
