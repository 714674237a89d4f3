"""Taps of a kernel that see nothing but padding have no gradient, whatever a library leaves there.

In bf16 on a CPU, oneDNN leaves there what the memory held.
"""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from timm.layers import Conv2dSame
from torch import Tensor, nn

from small_run import small_facts, small_recipe
from widefield.train import build as build_module
from widefield.train.build import build
from widefield.train.conv_bf16_workaround import padding_mask, zero_padding_gradients

CPU = torch.device("cpu")


@settings(max_examples=60, deadline=None)
@given(
    size=st.lists(st.integers(1, 6), min_size=1, max_size=2),
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    padding=st.one_of(st.integers(0, 4), st.just("same")),
    dilation=st.integers(1, 2),
)
def test_they_are_those_whose_gradient_is_zero_for_any_image(
    size: list[int], kernel: int, stride: int, padding: int | str, dilation: int
) -> None:
    """Brute force: autograd in double precision, on noise."""
    reach = dilation * (kernel - 1)
    if padding == "same":
        assume(kernel % 2)  # torch warns that it copies the map for others
        stride = 1
    else:
        assume(min(size) + 2 * int(padding) > reach)
    kind = nn.Conv1d if len(size) == 1 else nn.Conv2d
    conv = kind(2, 3, kernel, stride, padding, dilation, bias=False).double()
    x = torch.randn(4, 2, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    conv(x).sin().sum().backward()
    assert conv.weight.grad is not None
    untouched = (conv.weight.grad == 0).flatten(0, 1).all(0)
    assert torch.equal(padding_mask(conv, tuple(size)), untouched)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_layer_that_pads_by_itself_keeps_its_gradient(size: int) -> None:
    """Those of the encoders `tf_*` of timm do, and say of themselves that they pad nothing."""
    model, x = Conv2dSame(2, 2, 3), torch.rand(2, 2, size, size)
    assert not padding_mask(model, (size, size)).any()
    zero_padding_gradients(model, x)
    model(x).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad[..., 1, 1].all()


def test_a_kernel_that_does_not_fit_is_left_to_its_layer_to_refuse() -> None:
    with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
        zero_padding_gradients(nn.Conv2d(1, 1, 3), torch.zeros(1, 1, 1, 1))


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2, padding=1)
    )


def spoil(gradient: Tensor) -> Tensor:
    """What the library does: leave NaN at all taps but the last two of each side."""
    spoilt = torch.full_like(gradient, float("nan"))
    spoilt[..., 1:, 1:] = gradient[..., 1:, 1:]
    return spoilt


@pytest.mark.parametrize("cleared", [True, False])
def test_what_is_left_there_does_not_reach_the_weights(cleared: bool) -> None:
    """Uncleared, the old behavior, it does: the control."""
    model, x = network(), torch.rand(5, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    plain = network()
    plain.load_state_dict(model.state_dict())
    model[2].weight.register_hook(spoil)  # on a map of 2 x 2
    if cleared:
        zero_padding_gradients(model, x)
    for one in (model, plain):
        one(x).square().sum().backward()
    same = [
        torch.equal(a.grad, b.grad)
        for a, b in zip(model.parameters(), plain.parameters(), strict=True)
    ]
    assert same == [True, True, cleared, True]


def test_modes_and_weights_stay_and_a_frozen_layer_is_left_alone() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    before = [weight.clone() for weight in model.parameters()]
    zero_padding_gradients(model, torch.zeros(1, 3, 1, 1))
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(("precision", "called"), [("bf16", True), ("32", False)])
def test_a_run_in_bf16_on_a_cpu_clears_them(
    precision: str, called: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(build_module, "zero_padding_gradients", lambda *given: seen.append(given))
    build(small_recipe("simclr", precision=precision), small_facts(), device=CPU)
    assert bool(seen) == called
