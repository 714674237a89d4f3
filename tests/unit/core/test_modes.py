import pytest
from torch import nn

from widefield.core.modes import evaluating


def test_every_module_gets_its_own_mode_back_even_after_an_error() -> None:
    module = nn.Sequential(nn.Dropout(), nn.Sequential(nn.BatchNorm1d(2)).eval())
    modes = [part.training for part in module.modules()]
    assert set(modes) == {True, False}

    def fail() -> None:
        with evaluating(module):
            assert not any(part.training for part in module.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [part.training for part in module.modules()] == modes
