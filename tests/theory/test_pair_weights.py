import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draw
from widefield_labs import pair_weights as lab


@given(seed=st.integers(0, 99), pairs=st.integers(2, 6), features=st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_eq_3_is_the_double_sum_over_pairs_for_any_alpha(seed, pairs, features):
    g, g2 = draw(2, 2, pairs, features, seed=seed)
    alpha = draw(2, pairs, pairs, seed=seed + 1).abs()
    for one, two, weight, c in zip(
        g, g2, alpha, lab.contrastive_covariance(g, g2, alpha), strict=True
    ):
        total = torch.zeros_like(c)
        for i in range(pairs):
            own = torch.outer(one[i] - two[i], one[i] - two[i])
            for j in range(pairs):
                apart = one[i] - one[j]
                total += weight[i, j] * (torch.outer(apart, apart) - own)
        torch.testing.assert_close(c, total / (2 * pairs**2))


@given(y=st.tuples(st.floats(0, 2), st.floats(0, 2)), tau=st.floats(0.1, 5))
@settings(max_examples=40, deadline=None)
def test_kernel_features_sum_to_the_gaussian_kernel(y, tau):
    points = torch.tensor(y, dtype=torch.float64)
    phi = lab.kernel_features(points, tau, lab.kernel_terms(2.0, tau))
    expected = torch.exp(-lab.squared_distances(points.unsqueeze(-1)) / (2 * tau))
    torch.testing.assert_close(phi.T @ phi, expected, atol=1e-12, rtol=0)
    assert (phi >= 0).all()
