"""The objectives of `studies/keeping.py`, by their formulas."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from studies import keeping as objectives
from widefield.encoders import Encoder, build_encoder
from widefield.encoders.stages import stage_maps
from widefield.head import decoupled_contrast
from widefield.methods import ViewContrast
from widefield.methods.base import BuildContext
from widefield.methods.head_method import HeadMethod
from widefield.views import build_views
from widefield.views.image import Draw, crop_flip

SIZES = {"projector_width": 16, "projector_dim": 4}
BATCH = 6


def unit(*shape: int, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(*shape, generator=random), dim=-1)


def images(seed: int = 0) -> Tensor:
    return torch.rand(BATCH, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def small_encoder() -> Encoder:
    """Return an encoder whose maps do not depend on the other images of a batch."""
    return build_encoder("resnet-tiny", image_size=16, seed=0).eval()


def made(
    config: Any, encoder: nn.Module, generator: torch.Generator | None = None, **settings: Any
) -> HeadMethod:
    """Build a method on a small projector, with weights of seed 0."""
    context = BuildContext(
        encoder=encoder,
        feature_dim=128,
        examples=BATCH,
        labels={},
        steps=10,
        batch_size=BATCH,
        weight_decay=0.05,
        seed=0,
        device=torch.device("cpu"),
        generator=generator or torch.Generator().manual_seed(7),
    )
    torch.manual_seed(0)
    return config().changed(SIZES | settings).build(context)


def cross_entropy(z: Tensor, rows: Tensor, smoothing: float = 0.8) -> float:
    """Return the cross-entropy with smoothed targets by loops."""
    total, b = 0.0, len(z)
    for i in range(b):
        logits = [float(z[i] @ row) for row in rows]
        log_sum = math.log(sum(map(math.exp, logits)))
        for j in range(b):
            target = (1 - smoothing) * (i == j) + smoothing / b
            total -= target * (logits[j] - log_sum)
    return total / b


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_modified_contrast_is_that_of_features_moved_against_the_loss(epsilon: float) -> None:
    z, second = unit(5, 3).double(), unit(5, 3, seed=1).double()

    def term(i: int, step: float) -> float:
        """Return the loss of example i with features moved along z_i."""
        positive = math.exp(7 * z[i] @ (second[i] - step * z[i]))
        others = [other[j] for other in (second, z) for j in range(5) if j != i]
        negative = sum(math.exp(7 * z[i] @ (other + step * z[i])) for other in others)
        return -math.log(positive / (positive + negative))

    expected = sum(term(i, e) for i in range(5) for e in (0.0, epsilon)) / 10
    value = objectives.modified_contrast(z, second, scale=7.0, epsilon=epsilon)
    assert float(value) == pytest.approx(expected)


def test_decoupled_contrast_is_the_limit_of_large_steps() -> None:
    """The half with the step has the gradient of the default's contrast."""
    z, second = unit(5, 3).requires_grad_(), unit(5, 3, seed=1)

    def gradient(loss: Tensor) -> Tensor:
        return torch.autograd.grad(loss, z)[0]

    def modified(epsilon: float) -> Tensor:
        return gradient(objectives.modified_contrast(z, second, scale=7.0, epsilon=epsilon))

    default = gradient(decoupled_contrast(z, second, scale=7.0))
    torch.testing.assert_close(2 * modified(5.0) - modified(0.0), default)
    assert not torch.allclose(2 * modified(0.1) - modified(0.0), default, rtol=0.01)


def test_contrast_in_spaces_is_by_each_examples_space() -> None:
    z, second, space = unit(3, 5, 4), unit(3, 5, 4, seed=1), torch.tensor([0, 2, 1, 2, 0])
    total = 0.0
    for i, a in enumerate(space.tolist()):
        others = [v[a, j] for v in (second, z) for j in range(5) if j != i]
        near = math.log(sum(math.exp(7 * z[a, i] @ other) for other in others))
        total += near - 7 * float(z[a, i] @ second[a, i])
    value = objectives.contrast_in_spaces(z, second, space, scale=7.0)
    assert float(value) == pytest.approx(total / 5, rel=1e-5)
    alone = objectives.contrast_in_spaces(z, second, torch.zeros(5, dtype=torch.int64), scale=7.0)
    torch.testing.assert_close(alone, decoupled_contrast(z[0], second[0], scale=7.0))


def test_views_of_a_space_share_its_component_only() -> None:
    augmentation, x, random = build_views("expert"), images(), torch.Generator().manual_seed(0)
    first, second = (augmentation.draw(x, random) for _ in range(2))
    space = torch.tensor([0, 1, 2, 0, 1, 2])
    made = objectives.shared(first, second, space)
    for name in Draw._fields:
        is_crop = name in ("boxes", "flip")
        for i, a in enumerate(space.tolist()):
            source = first if a == (1 if is_crop else 2) else second
            assert torch.equal(getattr(made, name)[i], getattr(source, name)[i]), name


def test_parameters_give_the_place_of_the_crop_in_the_view() -> None:
    """The gray value of a linear ramp in the middle of a view is the center of its crop."""
    draw = build_views("expert").draw(images(), torch.Generator().manual_seed(3))
    draw = draw._replace(flip=torch.arange(BATCH) % 2 == 0)
    ramp = (torch.arange(16) + 0.5) / 16
    parameters = objectives.view_parameters(draw, (16, 16))
    for axis, image in enumerate((ramp[:, None].expand(16, 16), ramp.expand(16, 16))):
        view = crop_flip(image.expand(BATCH, 1, 16, 16), draw.boxes, draw.flip)
        center = view.mean((1, 2, 3))
        if axis == 1:
            center = torch.where(draw.flip, 1 - center, center)
        torch.testing.assert_close(parameters[:, axis], center, atol=2e-3, rtol=0)
    torch.testing.assert_close(16 * parameters[:, 2:4], draw.boxes[:, 2:])
    torch.testing.assert_close(parameters[:, 4:7], draw.factors)
    assert torch.equal(parameters[:, 7], draw.hue)


def test_the_error_of_prediction_is_relative_to_each_parameters_deviation() -> None:
    method = made(objectives.AugSelfConfig, small_encoder()).eval()
    assert isinstance(method, objectives.AugSelf)
    h, first, second = torch.rand(5, 256), torch.rand(5, 8), torch.rand(5, 8)
    predicted = method.predictor(h).detach().numpy()
    difference = (first - second).numpy()
    errors = [
        (predicted[i, k] - difference[i, k] / np.sqrt(np.mean(difference[:, k] ** 2))) ** 2
        for i, k in np.ndindex(5, 8)
    ]
    assert method.error(h, first, second).item() == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.parametrize("weight", [0.0, 10.0])
def test_augself_is_view_contrast_on_the_same_views_plus_its_error(weight: float) -> None:
    """The control, weight 0, is view-contrast itself."""
    encoder, x, index = small_encoder(), images(), torch.arange(BATCH)
    method = made(objectives.AugSelfConfig, encoder, prediction_weight=weight)
    loss = method(encoder, [x], index)
    views = build_views("expert")(x, 2, torch.Generator().manual_seed(7))
    torch.manual_seed(0)
    plain = ViewContrast(128, examples=BATCH, **SIZES)(encoder, views, index).total
    error = loss.parts["prediction_error"]
    torch.testing.assert_close(loss.total, plain + weight * error)
    assert torch.equal(loss.total, plain) == (weight == 0)


def test_stages_have_the_sum_of_a_loss_each() -> None:
    encoder, views, index = small_encoder(), [images(), images(1)], torch.arange(BATCH)
    method = made(objectives.StagedConfig, encoder)
    loss = method(encoder, views, index)
    torch.manual_seed(0)
    expected = torch.zeros(())
    for width, features in (
        (128, encoder),
        (64, lambda x: stage_maps(encoder, x, ["s3"])["s3"].mean((2, 3))),
    ):
        plain = ViewContrast(width, examples=BATCH, **SIZES)
        expected = expected + plain(features, views, index).total
    torch.testing.assert_close(loss.total, expected)
    loss.total.backward()
    assert all(p.grad is not None for p in method.parameters())


def test_rows_on_a_grid_are_added_with_their_weight() -> None:
    encoder, views, index = small_encoder(), [images(), images(1)], torch.arange(BATCH)
    method = made(objectives.GridRowsConfig, encoder, grid_weight=3.0)
    assert isinstance(method, objectives.GridRows)
    loss = method(encoder, views, index)
    torch.manual_seed(0)
    plain = ViewContrast(128, examples=BATCH, **SIZES)(encoder, views, index).total
    last = stage_maps(encoder, views[0], ["s4"])["s4"]  # [6, 128, 2, 2] of 16 pixels
    u = F.normalize(method.rows.projector(last.flatten(1)), dim=1).detach()
    term = cross_entropy(u, method.rows.head.batch_rows[0].detach())
    assert loss.total.item() == pytest.approx(plain.item() + 3 * term, rel=1e-4)


def test_three_spaces_have_rows_in_the_first() -> None:
    encoder, x, index = small_encoder(), images(), torch.arange(BATCH)
    method = made(objectives.LeaveOneOutConfig, encoder)
    loss = method(encoder, [x], index)
    rows = method.head.batch_rows[0].detach()
    random = torch.Generator().manual_seed(7)
    augmentation = build_views("expert")
    first, _ = (augmentation.draw(x, random) for _ in range(2))
    z = F.normalize(method.projector(encoder(augmentation.view(x, first))), dim=1).detach()
    expected = float(loss.parts["contrast"]) + 30 * cross_entropy(z, rows)
    assert loss.total.item() == pytest.approx(expected, rel=1e-4)


def test_modified_contrast_replaces_that_of_the_default() -> None:
    encoder, views, index = small_encoder(), [images(), images(1)], torch.arange(BATCH)
    method = made(objectives.ModifiedConfig, encoder, epsilon=0.2)
    loss = method(encoder, views, index)
    z, second = (F.normalize(method.projector(encoder(v)), dim=1).detach() for v in views)
    contrast = objectives.modified_contrast(z, second, scale=10.0, epsilon=0.2)
    expected = float(contrast) + 30 * cross_entropy(z, method.head.batch_rows[0].detach())
    assert loss.total.item() == pytest.approx(expected, rel=1e-4)
