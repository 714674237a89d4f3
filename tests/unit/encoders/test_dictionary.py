"""The dictionary of patches: its equations by loops, control arms, inputs of every form."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from axes import each_value
from widefield.core.hardware import limited_threads
from widefield.encoders import build_encoder, load_encoder, save_encoder, untrained_like
from widefield.encoders.dictionary import (
    FEATURES,
    THRESHOLD,
    CellFeatures,
    PatchDictionary,
    cell_roots,
    k_means,
    normalize_contrast,
    sample_patches,
    soft_threshold_means,
    spherical_k_means,
    whitened_directions,
    zca,
)
from widefield.encoders.readout import grid_means, grid_of


def inputs(*shape: int) -> Tensor:
    """Noise of different strength in each channel, smoothed along both axes."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x = x + x.roll(1, 2) + x.roll(1, 3)
    return x * torch.arange(1, shape[1] + 1)[:, None, None]


def fitted(x: Tensor, seed: int = 0) -> PatchDictionary:
    layer = PatchDictionary(x.shape[1], (x.shape[2], x.shape[3]))
    layer.fit([x], seed=seed)
    return layer


@pytest.mark.parametrize("shape", [(3, 12, 12), (1, 9, 16), (4, 1, 40), (2, 8, 8), (3, 70, 64)])
def test_the_layer_is_its_equations_patch_by_patch(shape: tuple[int, int, int]) -> None:
    x = inputs(6, *shape)
    layer = PatchDictionary(shape[0], shape[1:])
    mean = torch.rand(layer.weight[0].numel())
    filters = torch.randn(len(layer.weight), len(mean))
    layer._set(filters, filters @ mean)  # any filters of normalized patches u: w^T (u - mean)
    pooled = functional.avg_pool2d(x, layer.scale)
    whitening = torch.randn(shape[0], shape[0])
    layer.whitening.copy_(whitening + whitening.T)
    means, variance = layer.moments(pooled)
    found, colors = layer.responses(pooled, variance), layer.activations(means)
    (rows, columns), (down, right) = layer.side, layer.stride
    for i, j in itertools.product(range(found.shape[2]), range(found.shape[3])):
        patch = pooled[:, :, i * down :, j * right :][:, :, :rows, :columns].flatten(1)
        centered = patch - patch.mean(1, keepdim=True)
        u = centered / (patch.var(1, correction=0, keepdim=True) + 2.5e-3).sqrt()
        torch.testing.assert_close(found[:, :, i, j], (u - mean) @ filters.T, rtol=1e-3, atol=1e-3)
        c = patch.unflatten(1, (shape[0], -1)).mean(2) @ layer.whitening
        z = (c[:, None] - layer.centers).norm(dim=2)
        expected = (z.mean(1, keepdim=True) - z).clamp_min(0)
        torch.testing.assert_close(colors[:, :, i, j], expected, rtol=1e-3, atol=1e-3)
    both = torch.cat(
        [(found - THRESHOLD).clamp_min(0), (-found - THRESHOLD).clamp_min(0), colors], 1
    )
    size = [min(3, n) for n in found.shape[2:]]
    torch.testing.assert_close(layer(x), functional.avg_pool2d(both, size), rtol=1e-4, atol=1e-4)


def test_patches_are_whole_pieces_of_the_inputs() -> None:
    x = torch.arange(2 * 3 * 9 * 7).reshape(2, 3, 9, 7).float()
    patches = sample_patches(x, (4, 3), 50, torch.Generator().manual_seed(0))
    every = {
        tuple(x[n, :, i : i + 4, j : j + 3].flatten().tolist())
        for n in range(2)
        for i in range(6)
        for j in range(5)
    }
    assert {tuple(patch.tolist()) for patch in patches} <= every
    assert len(patches.unique(dim=0)) > 20


def test_normalized_patches_have_mean_zero_and_variance_one() -> None:
    u = normalize_contrast(5 + 10 * torch.randn(20, 30))
    torch.testing.assert_close(u.mean(1), torch.zeros(20), rtol=0, atol=1e-5)
    torch.testing.assert_close(u.var(1, correction=0), torch.ones(20), rtol=1e-3, atol=0)
    assert torch.equal(normalize_contrast(torch.full((2, 30), 7.0)), torch.zeros(2, 30))


def test_whitening_is_the_inverse_root_of_the_covariance() -> None:
    u = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 6)
    mean, whitening = zca(u)
    expected = torch.from_numpy(np.cov(u.numpy().T, bias=True)) + 0.1 * torch.eye(5)
    product = whitening.double() @ expected @ whitening.double()
    torch.testing.assert_close(product, torch.eye(5).double(), rtol=0, atol=1e-4)
    torch.testing.assert_close(whitening, whitening.T)
    torch.testing.assert_close(mean, u.mean(0), rtol=1e-4, atol=1e-4)


def test_k_means_follows_the_update_and_finds_planted_directions() -> None:
    generator = torch.Generator().manual_seed(0)
    planted = functional.normalize(torch.randn(4, 20, generator=generator), dim=1)
    kind = torch.randint(4, (2000,), generator=generator)
    sign = torch.randint(2, (2000, 1), generator=generator) * 2 - 1
    q = sign * planted[kind] + 0.1 * torch.randn(2000, 20, generator=generator)
    found = spherical_k_means(q, 16, torch.Generator().manual_seed(1))
    assert (planted @ found.T).abs().max(1).values.min() > 0.98
    centers = functional.normalize(
        torch.randn(16, 20, generator=torch.Generator().manual_seed(1)), dim=1
    )
    assert (planted @ centers.T).abs().max(1).values.min() < 0.8  # the control: where it began
    for _ in range(10):
        sums = centers.clone()
        for patch in q:
            products = centers @ patch
            j = int(products.abs().argmax())
            sums[j] += products[j] * patch
        centers = functional.normalize(sums, dim=1)
    torch.testing.assert_close(found, centers, rtol=1e-3, atol=1e-3)


def test_k_means_of_colors_follows_the_update_and_finds_planted_centers() -> None:
    generator = torch.Generator().manual_seed(0)
    planted = 4 * torch.randn(4, 3, generator=generator)
    kind = torch.randint(4, (600,), generator=generator)
    q = planted[kind] + 0.1 * torch.randn(600, 3, generator=generator)
    found = k_means(q, 16, torch.Generator().manual_seed(1))
    assert torch.cdist(planted, found).min(1).values.max() < 0.2
    centers = q[torch.randint(600, (16,), generator=torch.Generator().manual_seed(1))]
    for _ in range(10):
        nearest = (q[:, None] - centers).square().sum(2).argmin(1)
        for j in nearest.unique():
            centers[j] = q[nearest == j].mean(0)
    torch.testing.assert_close(found, centers, rtol=1e-3, atol=1e-3)


def test_patches_that_differ_in_color_alone_differ_in_the_features_of_means() -> None:
    """The control is the features of contrast, which are the same."""
    x = torch.rand(1, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, x + torch.tensor([0.5, 0.5, 0.5])[:, None, None]])
    f = fitted(torch.cat([x, inputs(20, 3, 12, 12)]))(x)
    contrast, colors = f.split([FEATURES - 32, 32], dim=1)
    torch.testing.assert_close(contrast[0], contrast[1], rtol=1e-3, atol=1e-3)
    assert (colors[0] - colors[1]).abs().max() > 0.05


def test_the_soft_threshold_keeps_both_signs() -> None:
    row = torch.tensor([-1.0, -0.2, 0.0, 0.3, 2.0, 0.25]).reshape(1, 1, 1, 6)
    positive, negative = soft_threshold_means(row, 0.25, (1, 1))[0, :, 0]
    torch.testing.assert_close(positive, torch.tensor([0, 0, 0, 0.05, 1.75, 0]))
    torch.testing.assert_close(negative, torch.tensor([0.75, 0, 0, 0, 0, 0]))
    # Means of one sign leave exactly 0 for the other, whose root would make rounding large.
    noise = torch.rand(9, 5, 7, 7, generator=torch.Generator().manual_seed(0))
    assert not soft_threshold_means(noise, 0.1, (3, 3))[:, 5:].any()


def test_cells_are_whitened_roots_of_means() -> None:
    maps = torch.rand(400, FEATURES, 6, 6, generator=torch.Generator().manual_seed(0)).square()
    cells = CellFeatures(20)
    cells.fit(torch.split(maps, 100))
    covariance = torch.cov(cells(maps).T, correction=0)
    torch.testing.assert_close(covariance, torch.eye(20), rtol=0, atol=1e-3)
    roots = cell_roots(maps)
    for n, (i, j) in enumerate(itertools.product(range(3), range(3))):
        mean = maps[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].mean((2, 3)).sqrt()
        torch.testing.assert_close(roots.unflatten(1, (-1, 9))[:, :, n], mean)


@pytest.mark.parametrize(("n", "rank"), [(200, 30), (25, 24), (10, 9), (200, 3)])
def test_directions_are_leading_eigenvectors_of_the_covariance(n: int, rank: int) -> None:
    """Also of fewer examples than features, of fewer than directions, and of low rank."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, rank, generator=generator, dtype=torch.float64)
    x = x @ torch.randn(rank, 30, generator=generator, dtype=torch.float64)
    x -= x.mean(0)
    found = whitened_directions(x, 12)
    assert found.shape == (30, 12)
    values, vectors = torch.linalg.eigh(x.T @ x / n)
    count = min(12, rank)
    expected = vectors.flip(1)[:, :count] / values.flip(0)[:count].sqrt()
    signs = (found[:, :count] * expected).sum(0).sign()  # of an eigenvector either is right
    torch.testing.assert_close(found[:, :count] * signs, expected)
    assert not found[:, count:].any()


def test_a_dictionary_depends_on_inputs_and_seed_alone() -> None:
    x = inputs(40, 3, 12, 12)
    layers = []
    for threads in (1, 2):
        with limited_threads(threads):
            layers.append(fitted(x))
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert torch.equal(layers[0].offset, layers[1].offset)
    assert not torch.equal(layers[0].weight, fitted(x, seed=1).weight)
    many = layers[0](inputs(40, 3, 12, 12))
    one = torch.cat([layers[0](part) for part in torch.split(x, 1)])
    torch.testing.assert_close(many, one, rtol=1e-5, atol=1e-6)  # no example depends on others


def test_fitted_filters_tell_textures_apart_better_than_random_ones() -> None:
    """Four kinds of stripes; the control is the layer before it was fitted."""
    generator = torch.Generator().manual_seed(0)
    kind = torch.randint(4, (300,), generator=generator)
    angle = kind / 4 * torch.pi
    row, column = torch.arange(12.0)[:, None], torch.arange(12.0)
    along = row * angle.cos()[:, None, None] + column * angle.sin()[:, None, None]
    phase = 6 * torch.rand(300, 1, 1, generator=generator)
    x = (1.5 * along + phase).sin()[:, None] + torch.randn(300, 1, 12, 12, generator=generator)

    def separation(layer: PatchDictionary) -> float:
        h = layer(x).mean((2, 3))
        means = torch.stack([h[kind == k].mean(0) for k in range(4)])
        within = (h - means[kind]).square().sum(1).mean()
        return float(means.var(0, correction=0).sum() / within)

    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = PatchDictionary(1, (12, 12))
    random = separation(layer)
    layer.fit([x], seed=0)
    assert separation(layer) > 1.5 * random


@pytest.mark.parametrize(
    "x",
    [
        torch.full((4, 3, 8, 8), 0.5),  # constant
        torch.zeros(1, 1, 32, 32),  # one example
        torch.rand(1, 64, 8, 8),  # 64 channels
        torch.rand(1, 3, 6, 6).repeat(50, 1, 1, 1),  # one patch, many times
        torch.rand(2, 1, 4, 5),  # smaller than a patch
        torch.rand(2, 6, 1, 40),  # windows
        torch.rand(2, 1, 224, 224),
    ],
    ids=lambda x: "x".join(map(str, x.shape)),
)
def test_inputs_of_every_form_give_finite_features(x: Tensor) -> None:
    layer, cells = fitted(x), CellFeatures(16)
    cells.fit([layer(x)])
    assert layer.weight.isfinite().all()
    assert cells(layer(x)).isfinite().all()


def test_inputs_that_are_not_finite_are_refused() -> None:
    x = torch.rand(4, 3, 8, 8)
    x[:, 0] = torch.nan
    with pytest.raises(ValueError, match="contain NaN or infinity: repair or leave them out"):
        fitted(x)


def test_the_network_keeps_its_dictionary_in_training_and_in_files(tmp_path) -> None:
    encoder = build_encoder("dictionary-tiny", seed=0)
    images = inputs(64, 3, 32, 32).sigmoid()
    encoder.fit(lambda: torch.split(images, 32), seed=0)
    before = {k: v.clone() for k, v in encoder.state_dict().items()}
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    encoder.train()(images).square().mean().backward()
    optimizer.step()
    encoder.eval()
    changed = {k for k, v in encoder.state_dict().items() if not torch.equal(v, before[k])}
    assert "backbone.block.branch.0.weight" in changed
    assert not any("dictionary" in key or "kept" in key for key in changed)
    kept = encoder(images)[:, 64:]
    torch.testing.assert_close(kept.mean(0), torch.zeros(64), rtol=0, atol=1e-3)
    save_encoder(encoder, tmp_path)
    assert torch.equal(load_encoder(tmp_path).eval()(images), encoder(images))
    # The untrained network has random filters: its features owe nothing to the data.
    other = untrained_like(encoder, seed=1).state_dict()["backbone.dictionary.weight"]
    assert not torch.equal(other, before["backbone.dictionary.weight"])


@each_value(
    ("form", [torch.contiguous_format, torch.channels_last]),
    (
        ("shape", "side"),
        [
            ((8, 8), 4),
            ((16, 16), 4),
            ((16, 8), 2),
            ((32, 32), 4),
            ((7, 5), 3),
            ((1, 32), 4),
            ((4, 4), 4),
        ],
    ),
)
def test_grid_means_are_those_of_each_cell(
    shape: tuple[int, int], side: int, form: torch.memory_format
) -> None:
    x = inputs(3, 2, *shape).contiguous(memory_format=form)
    height, width = shape
    rows, columns = grid_of(height, width, side)
    found = grid_means(x, side)
    assert found.shape == (3, 2 * rows * columns)
    for n, (i, j) in enumerate(itertools.product(range(rows), range(columns))):
        top, left = i * height // rows, j * width // columns
        bottom, right = -(-(i + 1) * height // rows), -(-(j + 1) * width // columns)
        mean = x[:, :, top:bottom, left:right].mean((2, 3))
        torch.testing.assert_close(found.unflatten(1, (2, -1))[:, :, n], mean, rtol=1e-6, atol=1e-6)
