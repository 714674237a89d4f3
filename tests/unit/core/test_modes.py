import pytest
import torch
from torch import nn

from elsewhere import HOME, Elsewhere
from widefield.core.devices import eval_mode, on_device


def test_every_module_gets_its_own_mode_back_even_after_an_error() -> None:
    module = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2)).eval())
    modes = [part.training for part in module.modules()]
    assert set(modes) == {True, False}

    def fail() -> None:
        with eval_mode(module):
            assert not any(part.training for part in module.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [part.training for part in module.modules()] == modes


def test_a_module_goes_back_to_its_device_even_after_an_error() -> None:
    away, module = torch.device("cpu"), Elsewhere()

    def fail() -> None:
        with on_device(module, away):
            assert module.moves == [away]
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert module.moves == [away, HOME]
    nothing = nn.Flatten()
    with on_device(nothing, away):  # it has no tensors, and is nowhere
        assert nothing(torch.ones(2, 3, 1)).shape == (2, 3)
