"""Readouts of floors are fitted on examples of all classes, in whatever order they are."""

import numpy as np
import pytest
import torch

from widefield.encoders import build_encoder
from widefield.probes import wide as wide_file
from widefield.probes.wide import wide_or_none


def test_a_readout_sees_examples_that_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first half is black; fitted on it alone, the input would have no directions."""
    monkeypatch.setattr(wide_file, "_UNTRAINED_EXAMPLES", 40)
    images = np.zeros((80, 16, 16, 3), dtype=np.uint8)
    images[40:] = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3))
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0).eval()
    found, of_first_half = (
        wide_or_none(encoder, half, device=torch.device("cpu")) for half in (images, images[:40])
    )
    assert found is not None
    assert found.readout.directions("input@32").abs().max() > 0
    assert of_first_half is not None  # the control arm
    assert of_first_half.readout.directions("input@32").abs().max() == 0
