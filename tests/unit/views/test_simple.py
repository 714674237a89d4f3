import pytest
import torch

from draws import generator
from widefield.views import AugmentContext, build_views


def test_random_masks_are_complementary_pairs() -> None:
    x = torch.rand(8, 3, 16, 16) / 2 + 0.25
    a, b, c, d, alone = build_views("random-mask")(x, 5, generator())
    for one, other in ((a, b), (c, d)):
        assert torch.equal(one + other, 2 * x)
        assert bool(((one == 0) ^ (other == 0)).all())
    assert bool((a != c).any())
    assert bool(((alone == 0) | (alone == 2 * x)).all())
    share = float((a == 0).float().mean())
    assert abs(share - 0.5) < 4 * 0.5 / x.numel() ** 0.5
    assert bool(((a == 0)[:, 0] != (a == 0)[:, 1]).any()), "each channel has coins of its own"


def test_noise_is_gaussian_of_its_deviation() -> None:
    x = torch.full((16, 3, 32, 32), 0.5)
    one, other = build_views("noise", noise_std=0.05)(x, 2, generator())
    noise = (one - x) / 0.05
    count = noise.numel() ** 0.5
    assert abs(float(noise.mean())) < 4 / count
    assert abs(float(noise.var()) - 1) < 4 * 2**0.5 / count
    assert abs(float((noise**4).mean()) - 3) < 4 * 96**0.5 / count
    both = torch.stack([one.flatten(), other.flatten()])
    assert abs(float(torch.corrcoef(both)[0, 1])) < 4 / count


def test_object_noise_stays_inside_the_mask() -> None:
    x = torch.rand(4, 3, 16, 16)
    mask = torch.rand(4, 1, 16, 16) < 0.3
    views = build_views("noise:object")(x, 2, generator(), AugmentContext(mask=mask))
    inside = mask.expand_as(x)
    for view in views:
        assert torch.equal(view[~inside], x[~inside])
        assert float((view[inside] != x[inside]).float().mean()) > 0.95


@pytest.mark.parametrize("steps", [1, 4])
def test_an_attack_climbs_to_the_edge_of_its_box(steps: int) -> None:
    """On a linear loss sum w.v the worst point is the corner x + budget sign(w), within [0, 1]."""
    x, w = torch.rand(4, 3, 8, 8), torch.randn(4, 3, 8, 8)
    views = build_views("adversarial", attack_budget=0.1, attack_steps=steps)
    linear = AugmentContext(gradients=lambda views: [w, -w])
    one, other = views(x, 2, generator(), linear)
    torch.testing.assert_close(one, (x + 0.1 * w.sign()).clamp(0, 1))
    torch.testing.assert_close(other, (x - 0.1 * w.sign()).clamp(0, 1))


def test_an_attack_starts_at_random_in_its_box() -> None:
    x = torch.full((8, 3, 16, 16), 0.5)
    views = build_views("adversarial", attack_budget=0.1, attack_steps=1)
    still = AugmentContext(gradients=lambda views: [torch.zeros_like(view) for view in views])
    one, other = views(x, 2, generator(), still)
    assert float((one - x).abs().max()) <= 0.1 + 1e-6
    assert float((one - x).abs().mean()) == pytest.approx(0.05, rel=0.05)
    assert bool((one != other).any())
