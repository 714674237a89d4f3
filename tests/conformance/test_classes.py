"""Every objective as a class: built alike from the encoder's width, and usable in any loop."""

import inspect
import subprocess
import sys
from typing import Any, Unpack

import pytest
import torch
from torch import Tensor, nn

from small_run import small_facts, small_recipe
from widefield import methods
from widefield.head import PerExampleHead
from widefield.methods import METHODS, Method
from widefield.methods.arguments import MethodArguments
from widefield.train.build import build

WIDTH, EXAMPLES = 6, 12

every_method = pytest.mark.parametrize("name", METHODS)


def class_of(name: str) -> Any:
    return type(build(small_recipe(name), small_facts(), device=torch.device("cpu")).method)


def needs(kind: Any, encoder: nn.Module) -> dict[str, Any]:
    """What this class needs of a training beside its settings."""
    known = {
        "encoder": encoder,
        "examples": EXAMPLES,
        "steps": 10,
        "labels": {"class": torch.arange(EXAMPLES) % 3},
    }
    parameters = inspect.signature(kind).parameters.values()
    named = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    return {p.name: known[p.name] for p in named}


@every_method
def test_it_is_built_from_the_encoders_width_and_trains_in_a_plain_loop(name: str) -> None:
    encoder, kind = nn.Linear(4, WIDTH), class_of(name)
    method = kind(WIDTH, **needs(kind, encoder))
    optimizer = torch.optim.SGD([*encoder.parameters(), *method.parameters()], lr=1e-3)
    before = encoder.weight.detach().clone()
    for index in torch.arange(EXAMPLES).split(6):
        views = [torch.randn(6, 4) for _ in range(method.view_count)]
        loss: Tensor = method(encoder, views, index).total
        loss.backward()
        optimizer.step()
        for part in method.modules():
            if isinstance(part, PerExampleHead):
                assert part.optimizer is not None
                part.optimizer.step()
        method.after_step()
        assert loss.isfinite()
    assert not torch.equal(before, encoder.weight)


@every_method
def test_its_name_is_public_and_its_config_has_it_too(name: str) -> None:
    kind, config = class_of(name), METHODS[name]
    assert getattr(methods, kind.__name__) is kind
    assert config.__name__ == f"{kind.__name__}Config"
    assert getattr(methods, config.__name__) is config
    assert list(inspect.signature(kind).parameters)[:2] == ["encoder_dim", "config"]
    assert kind.__module__ == config.__module__


@every_method
def test_settings_are_checked_by_name_and_value(name: str) -> None:
    kind = class_of(name)
    needed = needs(kind, nn.Linear(4, WIDTH))
    wrong = next(n for n in METHODS if METHODS[n] is not METHODS[name])
    for message, arguments in (
        (f"unknown setting of {name} 'lrr': did you mean 'lr'", {"lrr": 1.0}),
        ("lr must be a finite number above 0", {"lr": -1.0}),
        (f"config must be a {kind.__name__}Config", {"config": METHODS[wrong]()}),
    ):
        with pytest.raises(ValueError, match=message) as refused:
            kind(WIDTH, **needed, **arguments)
        assert "\n" not in str(refused.value)


@every_method
def test_its_settings_are_keywords_that_a_type_checker_knows(name: str) -> None:
    kind, settings = class_of(name), METHODS[name]().flat().keys()
    hint = inspect.signature(kind).parameters["settings"].annotation
    assert hint in ("Unpack[MethodArguments]", Unpack[MethodArguments])
    assert settings - {"teacher"} <= MethodArguments.__annotations__.keys()


def test_settings_replace_those_of_a_config() -> None:
    config = methods.SimCLRConfig(projector=methods.ProjectorConfig(layers=2, dim=7))
    method = methods.SimCLR(WIDTH, config, projector_width=9)
    assert [tuple(p.shape) for p in method.projector.parameters() if p.ndim == 2] == [
        (9, WIDTH),
        (7, 9),
    ]


def test_the_weights_are_those_of_a_run() -> None:
    state = build(small_recipe("simclr"), small_facts(), device=torch.device("cpu"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        alone: Method = methods.SimCLR(state.encoder.dim, small_recipe("simclr").method)
    for key, value in state.method.state_dict().items():
        assert torch.equal(value, alone.state_dict()[key]), key


def test_one_part_comes_without_the_others() -> None:
    absent = {
        "widefield.methods.simclr": ("methods.byol", "methods.registry", "head", "data"),
        "widefield.train.step": ("methods.registry", "data", "encoders", "config"),
    }
    code = "import sys\n" + "".join(f"import {m}; print(*sys.modules)\n" for m in absent)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for names, loaded in zip(absent.values(), done.stdout.splitlines(), strict=True):
        assert not {f"widefield.{name}" for name in names} & set(loaded.split())
