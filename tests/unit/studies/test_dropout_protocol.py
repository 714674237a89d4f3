"""Feature Dropout's probe: its schedule, its arithmetic, and that it leaves the encoder alone."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from studies.dropout_protocol import DrawBatch, learning_rate, score_sgd
from widefield.encoders import FeatureMap, build_encoder
from widefield.probes import Pixels
from widefield.probes.features import image_batch

CPU = torch.device("cpu")


def colored(count: int, seed: int = 0) -> tuple[np.ndarray, dict[str, Tensor]]:
    """Images [n, 8, 8, 3] whose loudest channel is one task and whose brighter half another."""
    rng = np.random.default_rng(seed)
    channel, side = rng.integers(0, 3, count), rng.integers(0, 2, count)
    images = rng.integers(0, 80, (count, 8, 8, 3))
    images[np.arange(count), ..., channel] += 80
    for i in range(count):
        images[i, :, 4 * side[i] : 4 * side[i] + 4] += 80
    labels = {"channel": torch.from_numpy(channel), "side": torch.from_numpy(side)}
    return images.astype(np.uint8), labels


def draw(
    images: np.ndarray, labels: dict[str, Tensor], augment: Callable[[Tensor, Generator], Tensor]
) -> DrawBatch:
    """Training batches of fixed images and labels."""

    def batch(
        index: np.ndarray, epoch: int, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        x = augment(image_batch(images[index], CPU), generator)
        return x, {task: ids[torch.from_numpy(index)] for task, ids in labels.items()}

    return batch


def flip_upside_down(x: Tensor, generator: Generator) -> Tensor:
    flips = torch.rand(len(x), generator=generator) < 0.5
    return torch.where(flips[:, None, None, None], x.flip(2), x)


def test_drops_are_at_epochs_60_and_80() -> None:
    rates = [learning_rate(epoch) for epoch in range(100)]
    assert rates == [0.01] * 60 + [0.001] * 20 + [0.0001] * 20


def test_separable_tasks_are_solved_side_by_side() -> None:
    train, test, classes = colored(300), colored(100, seed=1), {"channel": 3, "side": 2}
    batches = draw(*train, flip_upside_down)
    found = score_sgd(Pixels(), train, test, classes=classes, draw=batches, device=CPU)
    assert {task: outcome.value > 0.97 for task, outcome in found.items()} == {
        "channel": True,
        "side": True,
    }
    assert len(found["side"]) == 100


def test_one_batch_is_sgd_with_momentum_written_out() -> None:
    """With one batch an epoch and plain views every step sees the same gradient formula."""
    seen: list[Tensor] = []

    class Kept(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)[:, ::16]

    images, labels = colored(60)
    test, test_labels = colored(200, seed=1)

    def keep(x: Tensor, generator: Generator) -> Tensor:
        seen.append(x)
        return x

    found = score_sgd(
        Kept(),
        (images, {"side": labels["side"]}),
        (test, {"side": test_labels["side"]}),
        classes={"side": 2},
        draw=draw(images, labels, keep),
        device=CPU,
        epochs=70,
    )["side"]
    assert len(seen) == 70
    x = Kept()(torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255)
    target = nn.functional.one_hot(labels["side"], 2).double()
    w, b = torch.zeros(2, x.shape[1]).double(), torch.zeros(2).double()
    dw, db = torch.zeros_like(w), torch.zeros_like(b)
    for epoch in range(70):
        residual = (torch.softmax(x @ w.T + b, dim=1) - target) / len(x)
        dw, db = 0.9 * dw + residual.T @ x, 0.9 * db + residual.sum(0)
        rate = 0.01 if epoch < 60 else 0.001
        w, b = w - rate * dw, b - rate * db
    h = Kept()(torch.from_numpy(test).permute(0, 3, 1, 2).double() / 255)
    hits = ((h @ w.T + b).argmax(1) == test_labels["side"]).double().mean()
    assert found.value == pytest.approx(float(hits), abs=0.006)  # one image at the border


def test_labels_are_those_of_the_epochs_own_batches() -> None:
    """What is planted anew has another class in each epoch: images and labels go together."""
    (images, labels), test = colored(120), colored(100, seed=1)
    epochs: list[int] = []

    def swapped(
        index: np.ndarray, epoch: int, generator: Generator
    ) -> tuple[Tensor, dict[str, Tensor]]:
        epochs.append(epoch)
        # In every other epoch each image is that of the other side, and so is its label.
        other = epoch % 2
        x = image_batch(images[index], CPU)
        y = labels["side"][torch.from_numpy(index)]
        return (x.flip(3), {"side": 1 - y}) if other else (x, {"side": y})

    (found,) = score_sgd(
        Pixels(), (images, labels), test, classes={"side": 2}, draw=swapped, device=CPU
    ).values()
    assert epochs == list(range(100))
    assert found.value > 0.97


def test_fewer_drawings_are_used_again_in_turn() -> None:
    """Three drawings in six epochs: as six drawings of which the last three are the first."""
    # Labels that the images do not determine: accuracies differ with every change of the training.
    (images, _), (_, labels), test = colored(150), colored(150, seed=2), colored(100, seed=1)

    def scored(drawings: int) -> tuple[list[int], list[bool]]:
        numbers: list[int] = []

        def brighter(
            index: np.ndarray, number: int, generator: Generator
        ) -> tuple[Tensor, dict[str, Tensor]]:
            numbers.append(number)
            x = image_batch(images[index], CPU) * (1 + 0.5 * (number % 3))
            return x, {"side": labels["side"][torch.from_numpy(index)]}

        sets, options = ((images, labels), test), {"device": CPU, "epochs": 6}
        outcomes = score_sgd(
            Pixels(), *sets, classes={"side": 2}, draw=brighter, drawings=drawings, **options
        )
        return numbers, outcomes["side"].values.tolist()

    again, anew = scored(3), scored(6)
    assert again[0] == [0, 0, 1, 1, 2, 2]  # two batches of each
    assert anew[0] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert again[1] == anew[1]
    assert again[1] != scored(1)[1]


def test_the_encoder_stands_still_and_only_training_images_are_augmented() -> None:
    encoder = build_encoder("resnet-tiny", image_size=8, seed=0).train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    train, test = colored(20), colored(12, seed=1)
    drawn: list[int] = []

    def count(x: Tensor, generator: Generator) -> Tensor:
        assert not encoder.training
        drawn.append(len(x))
        return x

    batches = draw(*train, count)
    score_sgd(
        FeatureMap(encoder), train, test, classes={"side": 2}, draw=batches, device=CPU, epochs=9
    )
    assert drawn == [20] * 9
    assert encoder.training
    for key, value in encoder.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize(
    ("name", "size", "dim"), [("resnet18", 32, 8192), ("resnet-tiny", 32, 2048)]
)
def test_features_before_pooling_are_the_flattened_map(name: str, size: int, dim: int) -> None:
    encoder = build_encoder(name, image_size=size, seed=0).eval()
    x = torch.rand(2, 3, size, size)
    with torch.no_grad():
        h = FeatureMap(encoder)(x)
        assert h.shape == (2, dim)
        pooled = h.view(2, encoder.dim, -1).mean(2)
        torch.testing.assert_close(pooled, encoder(x))
