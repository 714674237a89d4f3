"""Sounds through the commands, as a user types them."""

import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import widefield
from commands import Command
from forked import ForkedCommand
from runs import assert_same_weights
from widefield.audits.page import audit_page
from widefield.audits.pictures import SOUND_NEIGHBORS, SOUND_ROWS
from widefield.data import open_dataset
from widefield.encoders import build_encoder, save_encoder

RATE, STEPS, COUNT = 4000, 2000, 64
SETTINGS = {"seconds": 0.5, "batch_size": 32, "encoder": "resnet-tiny", "quiet": True}


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tones of three classes in noise, some of them longer than an example."""
    folder = tmp_path_factory.mktemp("sounds")
    rng = np.random.default_rng(0)
    for i in range(COUNT):
        name, hertz = (("low", 250.0), ("middle", 600.0), ("high", 1400.0))[i % 3]
        (folder / "data" / name).mkdir(parents=True, exist_ok=True)
        time_axis = np.arange(STEPS * (1 + (i % 4 == 0))) / RATE
        tone = 0.3 * np.sin(2 * np.pi * hertz * rng.uniform(0.9, 1.1) * time_axis)
        noisy = tone + rng.normal(0, 0.03, len(tone))
        soundfile.write(folder / "data" / name / f"{i:03d}.wav", noisy, RATE)
    return folder


@pytest.fixture(scope="module")
def trained(sounds: Path) -> Path:
    widefield.pretrain(
        f"{sounds / 'data'}:train+background", out=sounds / "run", epochs=2, **SETTINGS
    )
    return sounds / "run"


def test_the_encoder_takes_waveforms_or_spectrograms(trained: Path) -> None:
    encoder = widefield.load(trained)
    assert (encoder.config.kind, encoder.config.rate) == ("sounds", RATE)
    assert encoder.config.image_size == (1, STEPS)
    wave = 0.1 * torch.randn(3, 1, 1, STEPS, generator=torch.Generator().manual_seed(0))
    assert encoder.spectrogram is not None
    picture = encoder.spectrogram(wave)
    assert picture.shape == (3, 1, 64, 64)
    assert torch.equal(encoder(wave), encoder(picture))
    assert encoder.feature_map(wave).ndim == 4


def test_the_report_plays_examples(trained: Path) -> None:
    page = (trained / "report.html").read_text()
    assert page.count('<audio controls preload="none" src="data:audio/wav;base64,') == 6
    assert "Example sounds" in page
    assert "media-src data:" in page
    for label in ("seconds", ">Hz<", "background h", "class "):
        assert label in page
    assert "<script" not in page


def test_every_command_takes_sounds(sounds: Path, trained: Path, command: Command) -> None:
    data = sounds / "data"
    probe = command.json("probe", trained, f"{data}:test+background")
    assert probe["tasks"].keys() == {"class", "background"}
    assert probe["tasks"]["class"]["floor"].keys() == {"pixels", "random", "dictionary", "majority"}
    command.text("embed", trained, data, "--out", sounds / "e.npz")
    with np.load(sounds / "e.npz") as saved:
        assert saved["features"].shape == (COUNT, 128)
    command.text("export", trained, "--out", sounds / "encoder.safetensors")
    assert widefield.load(sounds / "encoder.safetensors").config.rate == RATE


def test_classify_compares_with_untrained_networks_and_the_spectrogram(
    sounds: Path, trained: Path
) -> None:
    """With labels in a random order, the control, no features are better than untrained ones."""
    paths = sorted(str(p.relative_to(sounds / "data")) for p in (sounds / "data").rglob("*.wav"))
    labels = {path: path.partition("/")[0] for path in paths[::2]}
    found = widefield.classify(trained, sounds / "data", labels=labels, quiet=True)
    floors = found.floors
    assert floors.keys() == {
        "the raw spectrogram",
        "a dictionary of patches",
        "the untrained network",
        "the most frequent class",
    }
    assert floors["the most frequent class"].verdict == "higher"
    assert floors["the untrained network"].before > floors["the most frequent class"].before
    shuffled = dict(
        zip(labels, np.random.default_rng(0).permutation([*labels.values()]), strict=True)
    )
    control = widefield.classify(trained, sounds / "data", labels=shuffled, quiet=True)
    assert control.floors["the untrained network"].verdict != "higher"
    level = {path: float(len(name)) + 0.1 * i for i, (path, name) in enumerate(labels.items())}
    numbers = widefield.classify(trained, sounds / "data", labels=level, quiet=True)
    assert [*numbers.floors] == [
        "the raw spectrogram",
        "a dictionary of patches",
        "the untrained network",
        "the mean",
    ]


def test_an_audit_plants_sounds(sounds: Path, trained: Path, command: Command) -> None:
    page = sounds / "audit.html"
    command.text("audit", trained, sounds / "data", "--plant", "tone", "--out", page)
    text = page.read_text()
    assert "tone" in text
    assert "class" in text
    assert text.count("<audio controls") == SOUND_ROWS * (1 + SOUND_NEIGHBORS)
    assert text.count(">Hz<") == text.count("<audio controls")
    for words in ("Which sounds have similar features?", "A map of the sounds"):
        assert words in text
    assert "images" not in text


def test_what_is_planted_in_images_is_refused_before_a_ceiling_is_trained(
    sounds: Path, trained: Path, command: Command
) -> None:
    code, _, said = command("audit", trained, sounds / "data", "--plant", "digits")
    assert code == 2
    assert "these are sounds: choose tone, clicks or background" in said
    assert "ceiling" not in said


def test_an_encoder_of_another_rate_is_not_put_beside_one(
    sounds: Path, trained: Path, command: Command
) -> None:
    """As many samples, of half the time."""
    rival = sounds / "faster"
    settings = SETTINGS | {"seconds": STEPS / (2 * RATE)}
    widefield.pretrain(
        f"{sounds / 'data'}:train", out=rival, epochs=1, sample_rate=2 * RATE, **settings
    )
    assert widefield.load(rival).config.image_size == (1, STEPS)
    line = command.refused("audit", trained, sounds / "data", "--compare", rival)
    assert "sampling rate differs: 8000 for " in line


def test_an_audit_without_labels_plants_tones_and_clicks(sounds: Path, trained: Path) -> None:
    bare = open_dataset(sounds / "data", seconds=0.5).arrays()
    for task in ("class", "classes"):
        bare.pop(task, None)
    found = widefield.audit(trained, bare, quiet=True)
    assert found.tasks.keys() == {"tone", "clicks"}
    assert len(found.pictures.sounds) == SOUND_ROWS
    assert audit_page(found).count("<audio") >= SOUND_ROWS


def test_explore_shows_spectrograms(sounds: Path, trained: Path, command: Command) -> None:
    page = sounds / "explore.html"
    command.text("explore", trained, sounds / "data", "--out", page)
    text = page.read_text()
    assert f"{COUNT} sounds" in text
    assert "No sound chosen" in text
    sheet = re.search(r'data-shape="(\d+) (\d+)', text)
    assert sheet is not None
    assert sheet.groups() == ("96", "96")  # not the 1 x 2,000 samples of a sound


def test_onnx_takes_waveforms(sounds: Path, trained: Path, command: Command) -> None:
    import onnxruntime

    path = sounds / "encoder.onnx"
    command.text("export", trained, "--out", path)
    session = onnxruntime.InferenceSession(path)
    encoder = widefield.load(trained)
    for count in (1, 5):
        x = 0.1 * torch.randn(count, 1, 1, STEPS, generator=torch.Generator().manual_seed(count))
        (found,) = session.run(None, {"images": x.numpy()})
        with torch.no_grad():
            np.testing.assert_allclose(found, encoder(x).numpy(), atol=1e-4)


@pytest.mark.parametrize("views", ["viewmaker+waveaug", "none"])
def test_every_kind_of_view_trains(sounds: Path, tmp_path: Path, views: str) -> None:
    settings = {**SETTINGS, "max_examples": 24, "batch_size": 8}
    done = widefield.pretrain(
        sounds / "data", out=tmp_path / "run", epochs=1, views=views, **settings
    )
    assert done.steps == 3


def test_the_encoder_over_time_takes_waveforms(sounds: Path, tmp_path: Path) -> None:
    settings = {**SETTINGS, "encoder": "conv1d"}
    widefield.pretrain(sounds / "data", out=tmp_path / "run", epochs=1, **settings)
    encoder = widefield.load(tmp_path / "run")
    assert encoder.spectrogram is None
    assert widefield.embed(tmp_path / "run", sounds / "data").features.shape == (COUNT, 256)
    with pytest.raises(ValueError, match="'specaug' do not change sounds as this encoder"):
        widefield.pretrain(
            sounds / "data", out=tmp_path / "no", epochs=1, views="specaug", **settings
        )


def test_images_and_windows_are_refused(sounds: Path, trained: Path, command: Command) -> None:
    out = sounds / "no.npz"
    command.refused("embed", trained, "photos", "--out", out)
    windows = sounds / "w.npz"
    np.savez(windows, windows=np.ones((30, 1, STEPS)) * np.arange(STEPS))
    line = command.refused("embed", trained, windows, "--out", out)
    assert "kind of data differs: windows for " in line
    assert ": give sounds, or another encoder" in line


def test_a_run_that_was_killed_ends_bit_for_bit_as_it_would_have(
    sounds: Path, tmp_path: Path
) -> None:
    data = f"{sounds / 'data'}:train+background:fresh"
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = SETTINGS | {"epochs": 4, "checkpoint_every": 1}
    widefield.pretrain(data, out=whole, **settings)
    words = ("--epochs", 4, "--checkpoint-every", 1, "--seconds", 0.5, "--batch-size", 32)
    words = ("pretrain", data, "--out", cut, *words, "--encoder", "resnet-tiny")
    first = ForkedCommand(*map(str, words))
    deadline = time.monotonic() + 600
    while not (cut / "checkpoints" / "epoch-00002").exists():
        assert first.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.kill()
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    widefield.pretrain(data, out=cut, resume=True, quiet=True)
    assert_same_weights(whole, cut)


def test_data_of_another_kind_are_named(tmp_path: Path) -> None:
    """Before anything is said of their size or length, which cannot be what is wrong."""
    rng = np.random.default_rng(0)
    data = {
        "images": {"x": rng.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)},
        "windows": {"windows": rng.normal(size=(8, 3, 50))},
        "sounds": {"sounds": rng.integers(-9, 9, (8, 900), dtype=np.int16), "sample_rate": RATE},
    }
    encoders = {
        "images": build_encoder("resnet-tiny", image_size=16, seed=0),
        "windows": build_encoder("conv1d", image_size=(1, 64), seed=0),
        "sounds": build_encoder("conv1d", channels=1, image_size=(1, 800), rate=RATE, seed=0),
    }
    for mine, encoder in encoders.items():
        for kind, arrays in data.items():
            if kind != mine:
                said = f"kind of data differs: {kind} for .*, {mine} for "
                with pytest.raises(ValueError, match=said) as caught:
                    widefield.embed(encoder, arrays, quiet=True)
                assert "\n" not in str(caught.value)


def test_floors_of_sounds_and_windows_can_be_had() -> None:
    rng = np.random.default_rng(0)
    for data in (
        {"sounds": rng.integers(-9000, 9000, (48, 2000), dtype=np.int16), "sample_rate": RATE},
        {"windows": rng.normal(size=(48, 2, 64))},
    ):
        data["kind"] = np.arange(48) % 2
        fit, held = (
            {k: v if np.ndim(v) == 0 else v[i::2] for k, v in data.items()} for i in (0, 1)
        )
        for half in (fit, held):
            half["kind"] = np.arange(24) % 2
        for encoder in ("pixels", "random"):
            report = widefield.probe(encoder, held, train_data=fit, quiet=True)
            assert report.tasks["kind"].floor.keys() == {
                "pixels",
                "random",
                "dictionary",
                "majority",
            }


def test_a_folder_for_timm_of_an_encoder_of_spectrograms_is_refused(tmp_path: Path) -> None:
    encoder = build_encoder(
        "resnet-tiny", stem="native", channels=1, image_size=(1, STEPS), rate=RATE, seed=0
    )
    save_encoder(encoder, tmp_path / "run")
    with pytest.raises(ValueError, match=r"timm has no spectrograms .* \.safetensors or \.onnx"):
        widefield.export(tmp_path / "run", tmp_path / "folder")


def test_labels_that_change_at_each_read_are_refused(sounds: Path, tmp_path: Path) -> None:
    """Of sounds that are longer than an example too, which are cut anew at each read."""
    for seconds in (0.5, 1.0):
        with pytest.raises(ValueError, match="plant them without ':fresh'"):
            widefield.pretrain(
                f"{sounds / 'data'}+tone:fresh",
                out=tmp_path / "run",
                method="supervised",
                **SETTINGS | {"seconds": seconds},
            )


def test_a_plan_knows_what_sounds_take(sounds: Path) -> None:
    own = {key: value for key, value in SETTINGS.items() if key != "quiet"}
    plan = widefield.plan(sounds / "data", **own)
    assert plan.examples == COUNT
    assert plan.steps_per_epoch == COUNT // 32
    assert plan.parts["data"].bytes >= COUNT * STEPS * 2
