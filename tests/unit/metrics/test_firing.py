import pytest
import torch
from torch import Tensor, nn

from widefield.encoders import build_encoder
from widefield.metrics import firing_rates


class Twice(nn.Module):
    """One activation module used at two places, the second time in place."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu(self.dropout(self.relu(x) - 1)).flatten(1)


def test_a_module_used_twice_is_two_layers() -> None:
    x = torch.randn(50, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    rates = firing_rates(Twice(), x.clone(), batch_size=16)
    assert list(rates) == ["relu", "relu (2)"]
    torch.testing.assert_close(rates["relu"], (x > 0).flatten(1).float().mean(0))
    torch.testing.assert_close(rates["relu (2)"], (x > 1).flatten(1).float().mean(0))


def test_the_first_layer_of_a_resnet_by_hand_and_nothing_is_left_behind() -> None:
    encoder = build_encoder("resnet-tiny", seed=0).train()
    x = torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    rates = firing_rates(encoder, x)
    assert encoder.training
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
    assert not any(module._forward_hooks for module in encoder.modules())
    assert all(((rate >= 0) & (rate <= 1)).all() for rate in rates.values())
    backbone = encoder.eval().backbone
    with torch.no_grad():
        fired = backbone.bn1(backbone.conv1(encoder.normalize(x))) > 0
    torch.testing.assert_close(rates["backbone.act1"], fired.flatten(1).float().mean(0))


def test_gaussian_inputs_fire_half_the_time() -> None:
    x = torch.randn(4000, 1, 2, 2, generator=torch.Generator().manual_seed(0))
    rates = firing_rates(nn.Sequential(nn.GELU()), x)["0"]
    torch.testing.assert_close(rates, torch.full((4,), 0.5), atol=0.03, rtol=0)


def test_nothing_to_watch_is_said() -> None:
    with pytest.raises(ValueError, match="no activation layers"):
        firing_rates(nn.Flatten(), torch.rand(2, 3))
    with pytest.raises(ValueError, match="there are no images"):
        firing_rates(nn.ReLU(), torch.rand(0, 3))
