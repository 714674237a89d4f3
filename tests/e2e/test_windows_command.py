"""Windows through the commands, as a user types them."""

from pathlib import Path

import numpy as np
import pytest
import torch

import widefield
from commands import Command
from widefield.train.step import StepMetrics

COUNT = 120


@pytest.fixture(scope="module")
def sensors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Accelerometer-like windows in which the activity is a frequency, on gravity."""
    rng, steps = np.random.default_rng(0), np.arange(64)
    activity = np.arange(COUNT) % 3
    phase = rng.uniform(0, 2 * np.pi, (COUNT, 1))
    wave = np.sin(2 * np.pi * (4 + 5 * activity[:, None]) * steps / 64 + phase)
    x = wave[:, None] * np.array([[[1.0], [0.3]]]) + rng.normal(0, 0.3, (COUNT, 2, 64))
    folder = tmp_path_factory.mktemp("sensors")
    np.savez(folder / "w.npz", windows=x + np.array([[[0.0], [9.81]]]), activity=activity)
    return folder


@pytest.fixture(scope="module")
def trained(sensors: Path) -> Path:
    widefield.pretrain(
        f"{sensors / 'w.npz'}:train", out=sensors / "run", epochs=2, batch_size=32, quiet=True
    )
    return sensors / "run"


def test_pretrain_chooses_what_suits_windows(trained: Path) -> None:
    encoder = widefield.load(trained)
    assert (encoder.config.name, encoder.config.kind) == ("conv1d", "windows")
    assert encoder.config.image_size == (1, 64)
    assert encoder.config.mean[1] == pytest.approx(9.81, abs=0.1)
    assert encoder(torch.zeros(3, 2, 1, 64)).shape == (3, 256)
    page = (trained / "report.html").read_text()
    assert "On the left the original window" in page
    assert "<audio" not in page


def test_every_command_takes_windows(sensors: Path, trained: Path, command: Command) -> None:
    data = f"{sensors / 'w.npz'}:test"
    probe = command.json("probe", trained, data)
    score = probe["tasks"]["activity"]
    assert 0 <= score["accuracy"] <= 1
    assert score["floor"].keys() == {"pixels", "random", "dictionary", "majority"}
    command.text("embed", trained, sensors / "w.npz", "--out", sensors / "e.npz")
    with np.load(sensors / "e.npz") as saved:
        assert saved["features"].shape == (COUNT, 256)
    command.text("audit", trained, sensors / "w.npz", "--out", sensors / "audit.html")
    assert "activity" in (sensors / "audit.html").read_text()
    assert "Which windows have similar features?" in (sensors / "audit.html").read_text()
    command.text("explore", trained, sensors / "w.npz", "--out", sensors / "explore.html")
    assert f"{COUNT} windows" in (sensors / "explore.html").read_text()
    code, _, said = command("audit", trained, sensors / "w.npz", "--plant", "tone")
    assert code == 2
    assert "nothing is planted in windows: leave --plant out" in said
    assert "ceiling" not in said
    plan = command.json("plan", sensors / "w.npz", "--batch-size", 32)
    assert plan["encoder"] == "conv1d"
    command.text("export", trained, "--out", sensors / "encoder.safetensors")
    assert widefield.load(sensors / "encoder.safetensors").config.kind == "windows"


@pytest.mark.parametrize(("mean", "scale"), [(2e6, 1e3), (0, 1e9), (0, 1e-13)])
def test_windows_may_be_of_any_unit(
    sensors: Path, tmp_path: Path, mean: float, scale: float
) -> None:
    with np.load(sensors / "w.npz") as saved:
        x, activity = saved["windows"][:64], saved["activity"][:64]
    np.savez(tmp_path / "w.npz", windows=mean + scale * x, activity=activity)
    data, run = tmp_path / "w.npz", tmp_path / "run"
    widefield.pretrain(data, out=run, epochs=1, batch_size=32, quiet=True)
    features = widefield.embed(run, data, quiet=True).features
    assert np.isfinite(features).all()
    # Each channel is seen as a standard one, so that the network tells windows apart.
    assert np.ptp(features, axis=0).max() > 0.01
    normalized = (
        widefield.load(run)
        .cpu()
        .normalize(torch.from_numpy((mean + scale * x).astype(np.float32))[:, :, None])
    )
    assert normalized.std((0, 2, 3)).tolist() == pytest.approx([1, 1], rel=0.01)


def test_images_are_refused_for_an_encoder_of_windows(
    sensors: Path, trained: Path, command: Command
) -> None:
    line = command.refused("embed", trained, "photos", "--out", sensors / "no.npz")
    assert "photos" in line
    other = sensors / "other.npz"
    np.savez(other, windows=np.zeros((30, 2, 32)))
    assert "windows of 32 steps, and 64 steps" in command.refused(
        "embed", trained, other, "--out", sensors / "no.npz"
    )
    channels = sensors / "channels.npz"
    np.savez(channels, windows=np.ones((30, 3, 64)))
    assert "number of channels differs: 3 for " in command.refused(
        "embed", trained, channels, "--out", sensors / "no.npz"
    )
    assert "choose encoder 'conv1d'" in command.refused(
        "pretrain", sensors / "w.npz", "--out", sensors / "no", "--encoder", "resnet-tiny"
    )


def test_a_run_on_windows_resumes_bit_for_bit(sensors: Path) -> None:
    data, settings = f"{sensors / 'w.npz'}:train", {"batch_size": 32, "quiet": True}
    whole = widefield.pretrain(
        data, out=sensors / "whole", epochs=4, checkpoint_every=2, **settings
    ).encoder

    def stop(metrics: StepMetrics) -> None:
        if metrics.epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        widefield.pretrain(
            data, out=sensors / "cut", epochs=4, checkpoint_every=2, on_epoch=stop, **settings
        )
    widefield.pretrain(data, out=sensors / "cut", resume=True, quiet=True)
    resumed = widefield.load(sensors / "cut")
    for key, value in whole.state_dict().items():
        assert torch.equal(value.cpu(), resumed.state_dict()[key]), key
