from collections.abc import Callable

import numpy as np
import pytest
import torch
from skimage.measure import block_reduce
from torch import nn

from widefield.probes import extract, pixels
from widefield.probes.cross_fit import cross_fit
from widefield.probes.features import DictionaryFeatures


def images(n: int = 10, side: int = 8, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, side, side, channels), dtype=np.uint8)


def encoder() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.5), nn.Flatten()
    )


def test_the_encoder_sees_channels_first_in_unit_range_and_in_order() -> None:
    x = images()
    expected = x.astype(np.float32).transpose(0, 3, 1, 2).reshape(10, -1) / 255
    for batch_size in (1, 3, 10, 512):
        h = extract(nn.Flatten(), x, batch_size=batch_size)
        np.testing.assert_allclose(h.numpy(), expected, rtol=1e-6)
        assert h.dtype == torch.float32


def test_the_encoder_is_left_bit_for_bit_as_it_was() -> None:
    model = encoder().train()
    model[1].eval()  # a mixture of modes, as with frozen layers
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    h = extract(model, images(), batch_size=4)
    assert [module.training for module in model.modules()] == modes
    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    torch.testing.assert_close(h, extract(model.eval(), images(), batch_size=10))


def test_modes_come_back_when_the_encoder_fails() -> None:
    model = encoder().train()
    with pytest.raises(RuntimeError):
        extract(model, images(channels=4))
    assert all(module.training for module in model.modules())


def test_a_probe_can_differentiate_through_the_features() -> None:
    h = extract(encoder(), images())
    weight = torch.zeros(h.shape[1], requires_grad=True)
    (h @ weight).sum().backward()
    torch.testing.assert_close(weight.grad, h.sum(0))


def test_a_read_only_memory_map_will_do(tmp_path: "pytest.TempPathFactory") -> None:
    path = f"{tmp_path}/images.npy"
    np.save(path, images())
    mapped = np.load(path, mmap_mode="r")
    assert torch.equal(extract(encoder(), mapped), extract(encoder(), images()))


def test_bf16_features_are_close_and_float32() -> None:
    exact = extract(encoder(), images())
    rounded = extract(encoder(), images(), precision="bf16-mixed")
    assert rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.02, atol=0.02)


def test_pixels_of_small_images_are_the_pixels() -> None:
    x = images(side=32)
    expected = x.transpose(0, 3, 1, 2).reshape(10, -1) / 255
    np.testing.assert_allclose(pixels(x).numpy(), expected, rtol=1e-6)


def test_pixels_of_large_images_are_averages_over_areas() -> None:
    x = np.random.default_rng(1).integers(0, 256, (3, 96, 32, 1), dtype=np.uint8)
    expected = [block_reduce(image / 255, (3, 1, 1), np.mean).ravel() for image in x]
    np.testing.assert_allclose(pixels(x).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("use", [pixels, lambda x: extract(nn.Flatten(), x)])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (images().astype(np.float32), "float32"),
        (images()[0], r"\[8, 8, 3\]"),
        (images()[:0], "no images"),
    ],
)
def test_other_arrays_are_refused(
    use: Callable[[np.ndarray], torch.Tensor], bad: np.ndarray, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        use(bad)


def test_an_encoder_must_return_one_row_an_image() -> None:
    with pytest.raises(ValueError, match=r"\[10, 6, 6, 6\]"):
        extract(nn.Conv2d(3, 6, 3), images())


def test_a_dictionary_of_few_images_is_no_floor_at_chance() -> None:
    """Stripes of two directions at random phases: whitened in 159 directions, all are as far."""
    rng = np.random.default_rng(0)
    y = np.arange(160) % 2
    phase = rng.uniform(0, 2 * np.pi, (160, 1, 1))
    row, column = np.indices((16, 16))
    place = np.where(y[:, None, None] == 1, row, column)
    gray = 128 + 60 * np.sin(place + phase) + rng.normal(0, 20, (160, 16, 16))
    images = gray.clip(0, 255).astype(np.uint8)[..., None]
    h = extract(DictionaryFeatures.of(images), images)
    assert h.shape == (160, 20)
    outcomes, _ = cross_fit(h, {"direction": y}, seed=0)
    assert outcomes["direction"].value > 0.9
