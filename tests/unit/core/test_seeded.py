import torch

from widefield.core.rng import seeded


def test_the_same_seed_draws_the_same_and_the_global_state_stays() -> None:
    before = torch.get_rng_state()
    drawn = []
    for seed in (0, 0, 1):
        with seeded(seed):
            drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_it_draws_what_manual_seed_draws() -> None:
    generator = torch.Generator().manual_seed(7)
    with seeded(7):
        assert torch.equal(torch.rand(4), torch.rand(4, generator=generator))
