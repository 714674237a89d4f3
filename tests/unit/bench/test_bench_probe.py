from widefield.bench.probe import bench as bench_probe
from widefield.bench.probe import made_up_features
from widefield.metrics import health, singular_values


def test_both_solve_the_same_problem() -> None:
    found = bench_probe(examples=600, dim=64, tasks=2, seed=1)
    ours, theirs = (found["values"][f"{name} accuracy"] for name in ("widefield", "sklearn"))
    assert abs(ours - theirs) < 0.03  # their splits differ, so their strengths may
    seconds = found["values"]["sklearn seconds"] / found["values"]["widefield seconds"]
    assert found["ratios"] == {"sklearn/widefield": seconds}


def test_made_up_features_resemble_an_encoders() -> None:
    h, labels = made_up_features(1000, 128, 2, seed=0)
    assert h.shape == (1000, 128)
    assert h.min() >= 0
    assert set(labels) == {"task 0", "task 1"}
    assert health(h).verdict == "healthy"
    sigma = singular_values(h)
    assert sigma[0] > 5 * sigma[40]
