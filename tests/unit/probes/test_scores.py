import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score

from widefield.probes import score_predictions

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@given(PAIRS)
def test_shares_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    predicted, truth = (torch.tensor(side) for side in zip(*pairs, strict=True))
    found = score_predictions("y", predicted, truth, classes=4, knn=0.5, l2=0.1, train_examples=7)
    assert found.accuracy == accuracy_score(truth, predicted)
    there = sorted(set(truth.tolist()))
    recall = recall_score(truth, predicted, labels=there, average=None)
    assert [found.recall[k] for k in there] == recall.tolist()
    assert all(found.recall[k] is None for k in range(4) if k not in there)
    assert abs(found.balanced_accuracy - recall.mean()) < 1e-12
    if len(there) == 4:
        assert abs(found.balanced_accuracy - balanced_accuracy_score(truth, predicted)) < 1e-12


def test_a_small_class_that_is_missed_shows_in_the_mean_of_the_classes() -> None:
    truth = torch.tensor([0] * 98 + [1] * 2)
    found = score_predictions(
        "y", torch.zeros_like(truth), truth, classes=2, knn=0.5, l2=0.1, train_examples=7
    )
    assert (found.accuracy, found.balanced_accuracy) == (0.98, 0.5)
