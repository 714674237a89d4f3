"""Initial weights and data that training cannot use, or that leave nothing to measure."""

from pathlib import Path

import numpy as np
import pytest
import torch

import widefield
from widefield.encoders import Encoder, build_encoder
from widefield.train.run import Pretrained

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 16, 16, 3)).astype(np.uint8)


def start() -> Encoder:
    return build_encoder("resnet-tiny", image_size=16, seed=0)


def adapted(out: Path, init: Encoder, images: np.ndarray = IMAGES, epochs: int = 1) -> Pretrained:
    return widefield.pretrain(
        images,
        out=out,
        init=init,
        epochs=epochs,
        batch_size=min(8, len(images)),
        projector_width=32,
        projector_dim=16,
        quiet=True,
    )


@pytest.mark.parametrize("factor", [0.0, 1e-12])
def test_weights_of_constant_features_are_refused(factor: float, tmp_path: Path) -> None:
    encoder = start()
    with torch.no_grad():
        for weight in encoder.parameters():
            weight.mul_(factor)
    with pytest.raises(ValueError, match="same features for 16 different examples: give other"):
        adapted(tmp_path / "run", encoder)
    assert not (tmp_path / "run").exists()


def test_equal_images_are_no_fault_of_the_weights(tmp_path: Path) -> None:
    found = adapted(tmp_path / "run", start(), IMAGES[:1].repeat(9, 0))
    assert found.health.verdict == "collapsed"


def test_one_image_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"^view-contrast contrasts .* 1 in each process: give 2 examples or more$"
    ):
        adapted(tmp_path / "run", start(), IMAGES[:1])


def test_the_data_of_the_start_can_be_trained_on_again(tmp_path: Path) -> None:
    adapted(tmp_path / "first", start())
    again = adapted(tmp_path / "again", widefield.load(str(tmp_path / "first")))
    assert again.health.verdict == "healthy"
    assert again.adapted is None  # the encoder that was trained is the one of the run
