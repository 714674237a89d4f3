import pytest
import torch
from torch import Tensor, nn

from widefield.encoders import build_encoder, untrained_like, untrained_starts


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.full((400,), 7.0))
        self.norm = nn.BatchNorm1d(400)
        self.last = nn.Linear(400, 300)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.norm(x.flatten(1) + self.position))


def test_nothing_of_a_plain_module_is_kept() -> None:
    trained = Plain()
    trained(torch.rand(8, 400) + 3)
    state = torch.get_rng_state()
    fresh = untrained_like(trained, seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(fresh.norm.running_mean, torch.zeros(400))
    assert float(fresh.position.detach().std()) == pytest.approx(0.02, rel=0.2)
    assert float(fresh.position.detach().mean()) == pytest.approx(0, abs=0.005)
    assert not torch.equal(fresh.last.weight, trained.last.weight)
    again, other = (untrained_like(trained, seed=seed) for seed in (0, 1))
    assert torch.equal(fresh.last.weight, again.last.weight)
    assert not torch.equal(fresh.last.weight, other.last.weight)
    assert trained.position[0] == 7


def test_an_encoder_is_built_anew_from_its_settings() -> None:
    trained = build_encoder("resnet-tiny", image_size=16, mean=(0.1, 0.2, 0.3), seed=5)
    fresh = untrained_like(trained, seed=5)
    assert fresh.config == trained.config
    assert all(map(torch.equal, fresh.state_dict().values(), trained.state_dict().values()))


@pytest.mark.parametrize(("name", "count"), [("resnet-tiny", 2), ("convnext_atto", 1)])
def test_a_resnet_has_two_starts_and_others_one(name: str, count: int) -> None:
    starts = untrained_starts(build_encoder(name, seed=0), seed=7)
    assert len(starts) == count
    assert_same(starts[0], untrained_like(build_encoder(name, seed=0), seed=7))


def test_the_other_start_is_torchvisions() -> None:
    _, other = untrained_starts(build_encoder("resnet-tiny", seed=0), seed=7)
    assert_same(other, build_encoder("resnet-tiny", zero_init_last=False, seed=7))
    _, back = untrained_starts(other, seed=7)
    assert_same(back, build_encoder("resnet-tiny", seed=7))


def assert_same(a: nn.Module, b: nn.Module) -> None:
    assert a.state_dict().keys() == b.state_dict().keys()
    assert all(torch.equal(a.state_dict()[k], b.state_dict()[k]) for k in a.state_dict())
