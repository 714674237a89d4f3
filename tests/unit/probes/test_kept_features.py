"""Features and readouts in the cache: never those of another network or of other images."""

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.data import cache, open_dataset
from widefield.encoders import Encoder, FeatureMap, Wide, build_encoder, fit_readout, save_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.probes import kept, wide

CPU = torch.device("cpu")
IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cache, "KEPT_SECONDS", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def encoder() -> Encoder:
    return build_encoder("resnet-tiny", image_size=8, seed=0)


def entries() -> list[Path]:
    folder = cache.cache_folder()
    return sorted(folder.iterdir()) if folder.exists() else []


def returning(h: Tensor) -> Callable[[], Tensor]:
    return lambda: h


def never() -> Tensor:
    raise AssertionError("the features were computed again")


def asked(
    encoder: nn.Module, images: np.ndarray = IMAGES, precision: str = "32-true"
) -> Callable[[Callable[[], Tensor]], Tensor]:
    return lambda make: kept.kept_features(make, encoder, images, device=CPU, precision=precision)


def test_features_are_computed_once(encoder: Encoder) -> None:
    h = torch.rand(40, 5)
    assert torch.equal(asked(encoder)(returning(h)), h)
    assert torch.equal(asked(encoder)(never), h)
    assert len(entries()) == 1


def test_other_weights_images_or_precision_have_features_of_their_own(encoder: Encoder) -> None:
    asked(encoder)(returning(torch.zeros(40, 5)))
    changed = IMAGES.copy()
    changed[39, 7, 7, 2] ^= 1
    other = build_encoder("resnet-tiny", image_size=8, seed=0)
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-6
    averaged = build_encoder("resnet-tiny", image_size=8, seed=0)
    next(b for b in averaged.buffers() if b.is_floating_point())[0] += 1e-6
    normalized = build_encoder("resnet-tiny", image_size=8, seed=0, mean=(0.4, 0.5, 0.5))
    asks = [
        asked(encoder, changed),
        asked(other),
        asked(averaged),
        asked(normalized),
        asked(FeatureMap(encoder)),
        asked(encoder, precision="bf16-mixed"),
    ]
    for i, ask in enumerate(asks, start=1):
        h = torch.full((40, 5), float(i))
        assert torch.equal(ask(returning(h)), h)
    for i, ask in enumerate([asked(encoder), *asks]):
        assert torch.equal(ask(never), torch.full((40, 5), float(i)))


def test_code_that_changed_has_entries_of_its_own(encoder: Encoder) -> None:
    asked(encoder)(returning(torch.zeros(40, 5)))
    with mock.patch.object(kept, "digest_of_files", return_value=b"changed"):
        assert asked(encoder)(returning(torch.ones(40, 5))).sum() == 200


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"\x80\x04\x95"])
def test_a_damaged_entry_is_made_again(encoder: Encoder, damage: bytes) -> None:
    asked(encoder)(returning(torch.zeros(40, 5)))
    (file,) = cache.cache_folder().glob("*/features.npy")
    file.write_bytes(damage)
    assert asked(encoder)(returning(torch.ones(40, 5))).sum() == 200
    assert asked(encoder)(never).sum() == 200
    assert len(entries()) == 1


def test_features_of_other_sizes_are_not_taken(encoder: Encoder) -> None:
    asked(encoder)(returning(torch.zeros(40, 5)))
    (file,) = cache.cache_folder().glob("*/features.npy")
    np.save(file, np.zeros((39, 5), np.float32))
    assert asked(encoder)(returning(torch.ones(40, 5))).shape == (40, 5)


def test_a_cache_that_cannot_be_written_costs_nothing(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert asked(encoder)(returning(torch.ones(40, 5))).sum() == 200


def test_a_disk_that_is_almost_full_keeps_nothing(encoder: Encoder) -> None:
    with mock.patch("shutil.disk_usage") as usage:
        usage.return_value.free = 1000
        asked(encoder)(returning(torch.ones(40, 5)))
    assert entries() == []


def test_an_interrupted_entry_leaves_nothing(encoder: Encoder) -> None:
    with (
        mock.patch.object(np, "save", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        asked(encoder)(returning(torch.ones(40, 5)))
    assert entries() == []


def test_what_takes_little_time_is_not_kept(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "KEPT_SECONDS", 5.0)
    asked(encoder)(returning(torch.ones(40, 5)))
    assert entries() == []


def test_two_examples_are_encoded_without_a_hash_of_the_weights(encoder: Encoder) -> None:
    with mock.patch.object(kept, "digest", side_effect=AssertionError):
        assert asked(encoder, IMAGES[:2])(returning(torch.ones(2, 5))).sum() == 10


def test_a_network_of_ones_own_is_never_kept(encoder: Encoder) -> None:
    own = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))
    for module in (own, Wide(own, fit_readout(encoder, [torch.rand(40, 3, 8, 8)]))):
        asked(module)(returning(torch.ones(40, 5)))
    assert entries() == []


def test_commands_on_the_same_weights_encode_once(tmp_path: Path) -> None:
    save_encoder(build_encoder("resnet-tiny", image_size=8, seed=0), tmp_path / "weights")
    dataset = open_dataset(IMAGES)

    def features() -> Tensor:
        return open_encoder(tmp_path / "weights", "wide").with_readout(dataset).features(IMAGES)

    first = features()
    with (
        mock.patch("widefield.inference.features.extract", side_effect=AssertionError),
        mock.patch.object(wide, "fit_readout", side_effect=AssertionError),
    ):
        assert torch.equal(features(), first)
    assert len(entries()) == 2
