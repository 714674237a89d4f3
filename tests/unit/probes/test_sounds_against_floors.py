"""A run on sounds is compared with the untrained network and the raw spectrogram, by labels."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

import widefield
from widefield.data import open_dataset
from widefield.encoders import load_encoder
from widefield.probes.compare import IMAGE_COUNTS, compare_with_baseline

COUNT = IMAGE_COUNTS["untrained"][0]


def _sounds(labels: np.ndarray | None) -> dict[str, Any]:
    rng, t = np.random.default_rng(0), np.arange(2000) / 8000
    pitch = np.arange(COUNT) % 2
    tones = [np.sin(2 * np.pi * (400 + 600 * k) * t + rng.uniform(0, 6)) for k in pitch]
    x = (0.3 * np.stack(tones) + 0.1 * rng.normal(size=(COUNT, 2000))).clip(-1, 1)
    made = {"sounds": x.astype(np.float32), "sample_rate": np.array(8000)}
    return made if labels is None else made | {"tone": labels}


def test_the_end_of_a_run_on_sounds(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = widefield.pretrain(
        _sounds(np.arange(COUNT) % 2),
        out=out,
        epochs=1,
        seconds=0.25,
        batch_size=25,
        encoder="resnet-tiny",
        quiet=True,
    )
    found: Any = run.comparison
    assert found.kind == "sounds"
    assert found.pixels["tone"].before == 1  # the spectrogram shows the pitch
    assert "raw spectrogram 100 %" in found.lines()[1]
    assert found.linear["tone"].after > 0.8
    assert not found.label_free

    def compared(labels: np.ndarray | None) -> Any:
        sounds = open_dataset(_sounds(labels), seconds=0.25)
        return compare_with_baseline(load_encoder(out), sounds, seed=0, device=torch.device("cpu"))

    luck = compared(np.random.default_rng(1).integers(0, 2, COUNT))
    assert luck.pixels["tone"].before < 0.8  # the control
    assert luck.verdict != "better"
    assert compared(None) is None
