"""Distillation against its formula, written out with loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from draws import draw
from widefield.losses import feature_cosine
from widefield.methods import Distill
from widefield.methods.distill import teacher_rows

WIDTHS = (3, 5)


def by_loops(z: Tensor, features: list[Tensor]) -> float:
    """1 minus the mean over examples and teachers of a cosine with the centered features."""
    total = 0.0
    for i in range(len(z)):
        parts, first = [], 0
        for h in features:
            centered = [h[i, d].item() - h[:, d].mean().item() for d in range(h.shape[1])]
            length = math.sqrt(sum(x * x for x in centered))
            own = z[i, first : first + h.shape[1]].tolist()
            parts.append(sum(a * b / length for a, b in zip(own, centered, strict=True)))
            first += h.shape[1]
        length = math.sqrt(sum(x * x for x in z[i].tolist()))
        total += sum(parts) / (length * math.sqrt(len(features)))
    return 1 - total / len(z)


@given(count=st.integers(2, 6), teachers=st.integers(1, 2), seed=st.integers(0, 99))
def test_it_is_one_minus_the_cosine_with_each_teacher(count: int, teachers: int, seed: int) -> None:
    features = [draw(count, width, seed=seed + width) for width in WIDTHS[:teachers]]
    z = draw(count, sum(WIDTHS[:teachers]), seed=seed)
    found = feature_cosine(z, teacher_rows(features).double())
    assert float(found) == pytest.approx(by_loops(z, features), abs=1e-6)


def test_the_scale_of_a_teacher_does_not_count() -> None:
    first, second = draw(6, 3, seed=0), draw(6, 5, seed=1)
    rows, scaled = teacher_rows([first, second]), teacher_rows([100 * first + 7, second])
    torch.testing.assert_close(rows, scaled)
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6))


def test_rows_are_those_of_the_batch() -> None:
    targets = draw(8, 4, seed=2).numpy().astype(np.float16)
    method = Distill(3, examples=8, targets=targets)
    index, x = torch.tensor([6, 1, 3]), torch.rand(3, 3)
    expected = feature_cosine(method.projector(x), torch.from_numpy(targets[[6, 1, 3]]).float())
    torch.testing.assert_close(method(nn.Identity(), [x], index).total, expected)


def test_without_a_projector_teachers_have_the_width_of_the_encoder() -> None:
    targets, x = draw(8, 5, seed=2).numpy().astype(np.float16), draw(3, 5, seed=0)
    method = Distill(5, examples=8, targets=targets, projector_layers=0)
    expected = feature_cosine(x, torch.from_numpy(targets[[6, 1, 3]]).double())
    found = method(nn.Identity(), [x], torch.tensor([6, 1, 3])).total
    torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="have 5 features and the encoder 3: give proj"):
        Distill(3, examples=8, targets=targets, projector_layers=0)


def test_targets_of_other_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 7 targets for 8 examples: give all"):
        Distill(3, examples=8, targets=np.zeros((7, 4), np.float16))
