"""A run on sounds is compared with the untrained network and the raw spectrogram, by labels."""

from pathlib import Path
from typing import Any

import numpy as np

import widefield


def _sounds(labels: np.ndarray | None) -> dict[str, Any]:
    rng, t = np.random.default_rng(0), np.arange(4000) / 8000
    pitch = np.arange(120) % 2
    tones = [np.sin(2 * np.pi * (400 + 600 * k) * t + rng.uniform(0, 6)) for k in pitch]
    x = (0.3 * np.stack(tones) + 0.1 * rng.normal(size=(120, 4000))).clip(-1, 1)
    made = {"sounds": x.astype(np.float32), "sample_rate": np.array(8000)}
    return made if labels is None else made | {"tone": labels}


def _comparison(out: Path, labels: np.ndarray | None) -> Any:
    run = widefield.pretrain(
        _sounds(labels),
        out=out,
        epochs=1,
        seconds=0.5,
        batch_size=32,
        encoder="resnet-tiny",
        quiet=True,
    )
    return run.comparison


def test_the_end_of_a_run_on_sounds(tmp_path: Path) -> None:
    found = _comparison(tmp_path / "run", np.arange(120) % 2)
    assert found.kind == "sounds"
    assert found.pixels["tone"].before == 1  # the spectrogram shows the pitch
    assert "raw spectrogram 100 %" in found.lines()[1]
    assert found.linear["tone"].after > 0.8
    assert not found.label_free
    luck = _comparison(tmp_path / "luck", np.random.default_rng(1).integers(0, 2, 120))
    assert luck.pixels["tone"].before < 0.8  # the control
    assert luck.verdict != "better"
    assert _comparison(tmp_path / "none", None) is None
