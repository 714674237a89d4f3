import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield_labs import diet_is_spectral as lab

BROKEN = [
    ("diet", lambda a: a + 0.01, "DIET's minimizer"),
    ("spectral", lambda a: a + 0.01, "spectral loss's minimizer"),
    ("diet_value", lambda a: 1.01 * a, "DIET's least value is"),
    ("spectral_value", lambda a: 1.01 * a, "the spectral loss's is"),
    ("tie_diet", lambda a: a * 0, "one of many"),
    ("singular_diet", lambda a: a * 0, "M is singular"),
    ("borrowed_value", lambda a: 1.01 * a, "suitable isometry"),
    ("absorbed", lambda a: a + 0.01, "Lemma 4.2"),
    ("free", lambda a: a * 0, "free head itself"),
]


def views(seed, sets=2, examples=4, count=3, dimension=5):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(sets, examples, count, dimension, generator=g, dtype=torch.float64)


@given(seed=st.integers(0, 1000), rank=st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_losses_against_their_definitions(seed, rank):
    x = views(seed)
    sets, examples, count, dimension = x.shape
    g = torch.Generator().manual_seed(seed + 1)
    w = torch.randn(sets, rank, dimension, generator=g, dtype=torch.float64)
    head = torch.randn(sets, examples, rank, generator=g, dtype=torch.float64)
    data = lab.DataSets.from_views(x)
    for r in range(sets):
        points = x[r].reshape(-1, dimension)
        label = torch.arange(examples).repeat_interleave(count)
        target = torch.eye(examples, dtype=torch.float64)[label]
        diet = 0.5 * (points @ w[r].T @ head[r].T - target).square().sum(1).mean()
        gram = points @ w[r].T @ w[r] @ points.T
        same = label[:, None] == label
        spectral = -(gram * same).mean() + 0.5 * gram.square().mean()
        torch.testing.assert_close(lab.diet_loss(data, w, head)[r], diet)
        torch.testing.assert_close(lab.spectral_loss(data, w)[r], spectral)


@pytest.mark.parametrize("extra", [0, 3])  # constant coordinates make M singular
def test_leading_part_against_the_eigenvectors_of_the_product(extra):
    data = lab.DataSets.from_views(torch.nn.functional.pad(views(0), (0, extra)))
    part, lam = lab.leading_part(data, 2)
    for m, m_pos, found, values in zip(data.m, data.m_pos, part, lam, strict=True):
        product = torch.linalg.pinv(m, hermitian=True) @ m_pos
        eigenvalues, right = torch.linalg.eig(product)
        order = eigenvalues.real.argsort(descending=True)[:2]
        torch.testing.assert_close(eigenvalues.real[order], values[:2])
        # On its leading eigenvectors it acts like the product, and it has no others.
        lead = right[:, order].real
        torch.testing.assert_close(found @ lead, lead * values[:2])
        assert torch.linalg.matrix_rank(found, rtol=1e-8) == 2
        torch.testing.assert_close(found @ found @ lead, lead * values[:2] ** 2)


def test_matching_head_is_the_best_isometry():
    data = lab.DataSets.from_views(views(3))
    g = torch.Generator().manual_seed(0)
    w = torch.randn(2, 2, 5, generator=g, dtype=torch.float64)
    head = lab.matching_head(data, w)
    torch.testing.assert_close(head.mT @ head, torch.eye(2).double().expand(2, 2, 2))
    best = lab.diet_loss(data, w, head)
    for _ in range(200):
        near = head + 0.1 * torch.randn(head.shape, generator=g, dtype=torch.float64)
        other = torch.linalg.qr(near).Q
        other = other * (other * head).sum(-2, keepdim=True).sign()
        assert (lab.diet_loss(data, w, other) >= best).all()


def test_alternation_never_raises_the_loss_and_ends_where_the_gradient_is_zero():
    data = lab.DataSets.from_views(views(5))
    g = torch.Generator().manual_seed(0)
    start = torch.randn(2, 2, 5, generator=g, dtype=torch.float64)
    raw = torch.randn(2, 4, 2, generator=g, dtype=torch.float64)
    head, seen = lab.minimize_diet(data, start, raw, 30, free=True)
    w = seen[-1].clone().requires_grad_()
    head = head.clone().requires_grad_()
    assert len(seen) == 31
    for gradient in torch.autograd.grad(lab.diet_loss(data, w, head).sum(), [w, head]):
        assert gradient.abs().max() < 1e-8
