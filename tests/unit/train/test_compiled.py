"""Training steps with a compiled encoder: the same loss, gradients, files and resumed runs.

All but one are compiled by the backend of torch that needs no C++ compiler.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from axes import each_value
from runs import Killed, assert_same, die_at, images, small
from small_run import batch, train_step
from widefield.train import model as train_model
from widefield.train.model import CompiledEncoder
from widefield.train.run_dir import RunFolder
from widefield.workflows.plan import plan
from widefield.workflows.pretrain import pretrain

IMAGES = images()
VIT = "vit_tiny_patch16_224,depth=1"
QUICK_TO_COMPILE = {
    "cpp.vec_isa_ok": False,  # torch tries by programs of its own which vectors the compiler knows
    "compile_threads": 1,  # in this process, not in one that first imports torch
    "cpp_cache_precompile_headers": False,  # two files are compiled
}
"""For generated code: what prepares for many graphs takes longer than one."""


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounterWithBackend]:
    """The number of compiled graphs, by a backend without generated code."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    monkeypatch.setattr(train_model, "BACKEND", counter)
    yield counter
    torch._dynamo.reset()


def gradients(method: str, views: str, **settings: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of a step and its gradients."""
    step = train_step(method, views, **settings)
    kept: dict[str, Tensor] = {}
    for name, parameter in step.state.model.named_parameters():
        if parameter.requires_grad:
            parameter.register_hook(lambda grad, name=name: kept.update({name: grad.clone()}))
    torch.manual_seed(0)
    return step(batch())["loss"], kept


@pytest.mark.parametrize(
    ("method", "views", "settings"),
    [
        ("byol", "expert", {"encoder": "resnet-tiny"}),
        ("view-contrast", "expert", {"encoder": VIT}),
        ("simclr", "viewmaker", {"encoder": VIT}),
        ("s-diet", "expert", {"encoder": VIT, "micro_batch": 3}),
        ("s-diet", "expert", {"encoder": "resnet-tiny", "precision": "bf16"}),
    ],
    ids=["target network", "ViT", "learned views", "micro-batches", "bf16"],
)
def test_loss_and_gradients_are_those_without(
    graphs: CompileCounterWithBackend, method: str, views: str, settings: dict[str, Any]
) -> None:
    plain, expected = gradients(method, views, **settings)
    assert graphs.frame_count == 0
    loss, found = gradients(method, views, **settings, compile="default")
    assert graphs.frame_count > 0
    torch.testing.assert_close(loss, plain)
    assert found.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(found[name], grad, msg=name)


def test_generated_code_gives_the_same_features_and_gradients() -> None:
    """By torch's own backend, which a machine without a C++ compiler refuses."""
    if shutil.which("g++") is None:
        with pytest.raises(ValueError, match="choose compile none"):
            plan(IMAGES, compile="default", device="cpu")
        return
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.GELU())
    x = torch.rand(6, 3, 2, 2)
    results = []
    with torch._inductor.config.patch(QUICK_TO_COMPILE):
        for run in (encoder, CompiledEncoder(encoder, mode="default")):
            encoder.zero_grad()
            features = run(x)
            features.square().sum().backward()
            results.append([features.detach(), *(p.grad.clone() for p in encoder.parameters())])
    torch.testing.assert_close(results[1], results[0])


def test_weights_have_the_same_names(graphs: CompileCounterWithBackend) -> None:
    plain, other = (
        train_step("byol", "expert", compile=mode).state.model for mode in ("none", "default")
    )
    assert list(other.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in other.named_modules()] == [n for n, _ in plain.named_modules()]


def test_a_run_is_resumed_with_any_mode(tmp_path: Path, graphs: CompileCounterWithBackend) -> None:
    """It ends as a run without; this backend has torch's own kernels, so all bits are equal."""
    plain, run = tmp_path / "plain", tmp_path / "run"
    settings = {**small("simclr"), "encoder": VIT, "max_examples": 32}
    pretrain(IMAGES, out=plain, **settings)
    with pytest.raises(Killed):
        pretrain(IMAGES, out=run, **settings, compile="default", on_step=die_at(3))
    counts = [graphs.frame_count]
    torch._dynamo.reset()
    for stop, change in ((5, {}), (7, {"compile": "none"}), (9, {"compile": "default"})):
        with pytest.raises(Killed) if stop < 9 else nullcontext():
            pretrain(IMAGES, out=run, resume=True, quiet=True, on_step=die_at(stop), **change)
        counts.append(graphs.frame_count)
        torch._dynamo.reset()
    first, same, none, again = counts
    assert 0 < first < same == none < again
    assert_same(run, plain)
    assert RunFolder(path=run).recipe().compile == "default"


@pytest.mark.parametrize(("mode", "marks"), [("reduce-overhead", 2), ("default", 0)])
def test_each_step_releases_the_features_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch, mode: str, marks: int
) -> None:
    """CUDA graphs write all features at the same places."""
    monkeypatch.setattr(train_model, "BACKEND", lambda graph, inputs, **_: graph.forward)
    seen: list[int] = []
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: seen.append(1))
    step = train_step("s-diet", "expert", compile=mode)
    for _ in range(2):
        step(batch())
    assert len(seen) == marks


@each_value(
    ("call", [pretrain, plan]),
    (
        ("settings", "compiler", "message"),
        [
            (
                {"compile": "reduce-overhead"},
                "sh",
                "trains on a CPU: choose compile default or none",
            ),
            ({"compile": "default"}, "no-such-compiler", "no-such-compiler is not on the path"),
            ({"compile": "reduce-overhead", "micro_batch": 2}, "sh", "or leave micro_batch out"),
            ({"compile": "fast"}, "sh", "compile must be none, default or reduce-overhead"),
        ],
    ),
)
def test_what_cannot_be_compiled_is_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., object],
    settings: dict[str, Any],
    compiler: str,
    message: str,
) -> None:
    monkeypatch.setenv("CXX", compiler)
    out = {"out": tmp_path / "run"} if call is pretrain else {}
    with pytest.raises(ValueError, match=message) as refused:
        call(IMAGES, **out, **settings, device="cpu", epochs=1)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_of_the_compiler_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(graph: object, inputs: object) -> None:
        raise OSError("no space left\nin the cache")

    torch._dynamo.reset()
    monkeypatch.setattr(train_model, "BACKEND", fails)
    with pytest.raises(ValueError, match=r"torch cannot compile the encoder: .*: choose") as told:
        CompiledEncoder(nn.Linear(2, 2), mode="default")(torch.ones(1, 2))
    assert "\n" not in str(told.value)
