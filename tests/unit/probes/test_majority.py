import torch
from hypothesis import given
from hypothesis import strategies as st

from widefield.probes import majority

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


@given(train=LABELS, test=LABELS)
def test_the_share_of_test_labels_that_are_the_commonest_of_training(
    train: list[int], test: list[int]
) -> None:
    found = majority({"y": torch.tensor(train)}, {"y": torch.tensor(test)}, classes={"y": 4})["y"]
    commonest = max(range(4), key=train.count)  # of equals the first, as of bincount
    assert found.accuracy == test.count(commonest) / len(test)
    assert found.low <= found.accuracy <= found.high
    assert (found.knn, found.train_examples, found.test_examples) == (
        found.accuracy,
        len(train),
        len(test),
    )
