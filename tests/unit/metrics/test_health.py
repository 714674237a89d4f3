import pytest
import timm
import torch
from skimage import data as photos
from torch import Tensor

from axes import each_value
from widefield.metrics import Health, effective_rank, feature_std, health, large_singular_values


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def of_rank(rank: int, n: int, dim: int, noise: float) -> Tensor:
    return normal(n, rank) @ normal(rank, dim, seed=1) + noise * normal(n, dim, seed=2)


def crops(n: int) -> Tensor:
    """Natural 32 x 32 images [n, 3, 32, 32] in [0, 1]."""
    generator = torch.Generator().manual_seed(0)
    sources = [torch.from_numpy(image()) for image in (photos.astronaut, photos.coffee)]
    images = []
    for i in range(n):
        source = sources[i % 2]
        top, left = (
            int(torch.randint(0, side - 64, (), generator=generator)) for side in source.shape[:2]
        )
        images.append(source[top : top + 64 : 2, left : left + 64 : 2])
    return torch.stack(images).permute(0, 3, 1, 2) / 255


@each_value(("n", [64, 2000]), ("dim", [128, 512]))
def test_spread_features_are_healthy(n: int, dim: int) -> None:
    assert health(normal(n, dim)).verdict == "healthy"
    decaying = normal(n, dim) * torch.arange(1, dim + 1) ** -0.7
    assert health(decaying).verdict == "healthy"
    positive = (decaying @ normal(dim, dim) + 0.5).relu()
    assert health(positive).verdict == "healthy"


@each_value(("n", [64, 500]), ("dim", [128, 512]))
def test_equal_features_are_collapsed(n: int, dim: int) -> None:
    center = normal(dim).relu()
    for noise in (0.0, 1e-6, 1e-3):
        found = health(center + noise * normal(n, dim))
        assert found.verdict == "collapsed"
        assert found.feature_std < 0.01
        assert "same features" in found.advice
    in_bf16 = (center + 1e-4 * normal(n, dim)).bfloat16().float()
    assert health(in_bf16).verdict == "collapsed"


@each_value(("n", [64, 500]), ("dim", [128, 512]), ("rank", [1, 2]), ("noise", [0.0, 1e-4, 1e-2]))
def test_features_on_a_line_or_a_plane_are_collapsed(
    n: int, dim: int, rank: int, noise: float
) -> None:
    found = health(of_rank(rank, n, dim, noise) + 1)
    assert found.verdict == "collapsed"
    assert found.feature_std > 0.05
    assert "few directions" in found.advice


@pytest.mark.parametrize("n", [64, 500])
def test_a_handful_of_directions_is_on_the_way(n: int) -> None:
    assert health(of_rank(5, n, 128, 1e-3)).verdict == "collapsing"
    assert health(normal(128) + 0.03 * normal(n, 128)).verdict == "collapsing"
    assert health(of_rank(12, n, 128, 1e-3)).verdict == "healthy"


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_an_untrained_encoder_has_not_collapsed(name: str) -> None:
    for seed in range(2):
        torch.manual_seed(seed)
        encoder = timm.create_model(name, num_classes=0).eval()
        with torch.inference_mode():
            h = encoder(crops(64))
        found = health(h)
        assert found.feature_std < 0.5  # a large common mean ...
        assert found.verdict == "healthy", found.line()  # ... is no collapse


def test_few_dimensions_are_not_held_against_an_encoder() -> None:
    for dim in (1, 2, 3, 4, 6, 10):
        assert health(normal(300, dim)).verdict == "healthy"
        if dim > 1:
            assert health(of_rank(1, 300, dim, 0.0)).verdict == "collapsed"


def test_numbers_are_those_of_the_spectrum() -> None:
    h = of_rank(20, 200, 64, 0.1) + 2
    found = health(h)
    assert found.effective_rank == effective_rank(h)
    assert found.large_singular_values == large_singular_values(h)
    assert found.feature_std == feature_std(h)
    assert found.possible_rank == 64
    assert health(h[:40]).possible_rank == 39


def test_the_line_reads_plainly() -> None:
    found = Health(62.9, 128, 41, 0.712, "healthy", "")
    assert found.line() == (
        "healthy: effective rank 63 of 128, 41 large singular values, feature std 0.71"
    )


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-14, 1e20])
def test_the_scale_of_features_is_no_matter_of_health(scale: float) -> None:
    for h in (normal(200, 16), of_rank(5, 200, 128, 1e-3), 1 + 1e-3 * normal(200, 16)):
        plain, scaled = health(h), health(scale * h)
        assert scaled.line() == plain.line()
        assert scaled.feature_std == pytest.approx(plain.feature_std, rel=1e-4)
