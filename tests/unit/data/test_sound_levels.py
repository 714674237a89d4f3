"""Channels that cancel, offsets, levels, sampling rates and odd headers of sound files."""

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from widefield.data import open_dataset
from widefield.data.decode.sounds import UnreadableError, decode, to_mono, without_offset
from widefield.data.readers.recordings import from_int16
from widefield.inference.features import FeatureExtractor

RATE = 8000


def tone(hertz: float = 700.0, rate: int = RATE, seconds: float = 1.0) -> np.ndarray:
    return 0.3 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def noise(seed: int, level: float = 0.1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, level, RATE)


def read(path: Path) -> np.ndarray:
    return from_int16(decode(path, RATE)[0])


def mono(*channels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Mix channels, read in blocks of 3,000 samples."""
    x = np.stack(channels, axis=1).astype(np.float32)
    return to_mono(lambda: iter(np.split(x, range(3000, len(x), 3000))))


OPPOSITE: dict[str, list[np.ndarray]] = {
    "exactly": [tone(), -tone()],
    "with noise of each": [tone() + noise(0, 0.001), -tone() + noise(1, 0.001)],
    "one a little quieter": [0.8 * tone(), -tone()],
    "with an offset in common": [tone() + 0.5, -tone() + 0.5],
    "with two offsets": [tone() + 0.5, -tone() - 0.2],
    "two pairs": [1.02 * tone(), -tone(), tone(900), -tone(900)],
    "beside an empty channel": [np.zeros(RATE), -tone(), tone()],
    "half a period apart": [tone(500), np.roll(tone(500), 8)],
    "noise": [noise(2), -noise(2)],
}


@pytest.mark.parametrize("kind", OPPOSITE)
def test_of_channels_that_cancel_the_loudest_is_taken(kind: str) -> None:
    channels = OPPOSITE[kind]
    x, choices = mono(*channels)
    loudest = max(channels, key=np.var)
    assert choices == ("canceled",)
    np.testing.assert_allclose(x, loudest, atol=1e-6)
    assert np.mean(channels, axis=0).std() < 0.2 * loudest.std()  # the former rule


TOGETHER: dict[str, list[np.ndarray]] = {
    "equal": [tone(), tone()],
    "independent": [noise(0), noise(1)],
    "independent, unequal": [noise(0), 3 * noise(1)],
    "tones of other frequencies": [tone(300), tone(500)],
    "a delay": [noise(3), np.roll(noise(3), 5)],
    "three": [noise(0), noise(1), -noise(4)],
    "one of opposite phase but quiet": [tone(), -0.1 * tone()],
    "both silent": [np.zeros(RATE), np.zeros(RATE)],
    "one": [noise(5)],
}


@pytest.mark.parametrize("kind", TOGETHER)
def test_other_channels_are_averaged(kind: str) -> None:
    x, choices = mono(*TOGETHER[kind])
    assert choices == ()
    np.testing.assert_allclose(x, np.mean(TOGETHER[kind], axis=0), atol=1e-6)


@pytest.mark.parametrize("place", [0, 1, 5])
@pytest.mark.parametrize("level", [0.0, 1e-4])
def test_channels_without_sound_are_left_out(place: int, level: float) -> None:
    channels = [noise(i, level) + 0.25 * i for i in range(6)]
    channels[place] = tone() + 0.25 * place
    x, choices = mono(*channels)
    assert choices == ("silent_channel",)
    np.testing.assert_allclose(x - x.mean(), tone(), atol=1e-6 + 20 * level)
    former = np.mean(channels, axis=0)
    assert former.std() < 0.2 * tone().std()


@pytest.mark.parametrize("offset", [-0.4, 1e-3, 0.03, 0.6])
@pytest.mark.parametrize("end", ["none", "zeros", "offset", "middle"])
def test_a_constant_offset_is_removed(offset: float, end: str) -> None:
    """Also where the recording was padded, before or after the offset came in."""
    rest = np.zeros(RATE // 2)
    expected = {
        "none": [tone()],
        "zeros": [tone(), rest],
        "offset": [rest, tone()],
        "middle": [tone(), rest, tone()],
    }[end]
    plain = np.concatenate(expected)
    silent = np.concatenate([np.full(len(part), not part.any()) for part in expected])
    heard = plain + np.where(silent & (end != "offset"), 0, offset)
    x, choices = without_offset(heard.astype(np.float32), RATE)
    np.testing.assert_allclose(x, plain, atol=1e-6 + 1e-4)
    assert choices == (("offset",) if abs(offset) > 0.1 * tone().std() else ())
    if abs(offset) > 0.02 and end in ("zeros", "middle"):  # one mean for all of it
        assert np.abs(heard - heard.mean() - plain).max() > 0.2 * abs(offset)


def test_low_tones_are_no_offset_and_constants_are_silence(tmp_path: Path) -> None:
    square = np.where(np.arange(RATE) % 400 < 200, 0.2, -0.2).astype(np.float32)  # 20 Hz
    np.testing.assert_allclose(without_offset(square, RATE)[0], square, atol=1e-6)
    for constant in (0.0, -1 / 128, 0.7):
        soundfile.write(tmp_path / "a.wav", np.full(RATE, constant), RATE, subtype="FLOAT")
        with pytest.raises(UnreadableError, match="is silent"):
            decode(tmp_path / "a.wav", RATE)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT"])
def test_all_of_it_is_reported_with_counts(tmp_path: Path, subtype: str) -> None:
    sounds = {
        "a": np.stack([tone(), -tone()], 1),
        "b": np.stack([tone(900), -tone(900)], 1),
        "c": np.stack([np.zeros(RATE), tone()], 1),
        "d": 0.5 + tone(),
        "e": np.stack([tone(300), tone(300)], 1),
    }
    for name, x in sounds.items():
        soundfile.write(tmp_path / f"{name}.wav", x, RATE, subtype=subtype)
    (note,) = (note for note in open_dataset(tmp_path).notes if note.startswith("of 5 sounds"))
    assert note == (
        "of 5 sounds, 2 have channels that cancel when averaged, and the loudest one is taken; "
        "1 have channels without sound, which are left out; 1 have a constant offset, which is "
        "removed"
    )
    plain = open_dataset({"sounds": np.stack([tone(), tone(900)]), "sample_rate": np.array(RATE)})
    assert not any("of 2 sounds" in note for note in plain.notes)
    moved = {"sounds": np.stack([tone(), tone(900) + 0.2]), "sample_rate": np.array(RATE)}
    again = open_dataset(moved)
    assert "of 2 sounds, 1 have a constant offset, which is removed" in again.notes
    assert np.abs(again.images.astype(int) - plain.images).max() <= 1


def test_what_a_cached_folder_holds_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widefield.data.cache.KEPT_FROM", 1)
    soundfile.write(tmp_path / "a.wav", np.stack([tone(), -tone()], 1), RATE)
    first, second = (open_dataset(tmp_path) for _ in range(2))
    assert "decoded before" in second.storage
    assert first.notes == second.notes


@pytest.mark.parametrize("peak", [1.01, 1.8, 7.5])
def test_peaks_above_full_scale_are_scaled_down(tmp_path: Path, peak: float) -> None:
    x = peak / 0.3 * tone()
    soundfile.write(tmp_path / "a.wav", x, RATE, subtype="FLOAT")
    np.testing.assert_allclose(read(tmp_path / "a.wav"), x / peak, atol=1e-4)
    assert "1 exceed full scale" in open_dataset(tmp_path).notes[-1]
    if peak > 1.1:
        assert np.abs(x.clip(-1, 1) / 1 - x / peak).max() > 0.05  # the former rule


@pytest.mark.parametrize("subtype", ["PCM_24", "FLOAT"])
@pytest.mark.parametrize("level", [-70, -80, -100, -110])
def test_sounds_too_quiet_for_16_bits_are_raised_and_told(
    level: int, subtype: str, tmp_path: Path
) -> None:
    x = 10 ** (level / 20) / 0.3 * tone()
    soundfile.write(tmp_path / "a.wav", x, RATE, subtype=subtype)
    soundfile.write(tmp_path / "b.wav", tone(), RATE, subtype=subtype)
    dataset = open_dataset(tmp_path)
    first, second = from_int16(dataset.images[:, 0, :, 0])
    np.testing.assert_allclose(first, 256 * x, atol=1e-4)
    assert np.corrcoef(first, tone())[0, 1] > 0.99
    np.testing.assert_allclose(second, tone(), atol=1e-4)
    assert any("1 are below -66 dB" in x and "raised by 48 dB" in x for x in dataset.notes)


@pytest.mark.parametrize("level", [0.0, 0.25])
@pytest.mark.parametrize("samples", [1, 3, 100])
def test_a_click_in_silence_is_a_sound(samples: int, level: float, tmp_path: Path) -> None:
    x = np.full(RATE, level)
    x[4000 : 4000 + samples] += 0.5
    soundfile.write(tmp_path / "a.wav", x, RATE)
    np.testing.assert_allclose(read(tmp_path / "a.wav"), x - level, atol=1e-3)


def test_sounds_too_quiet_for_24_bits_are_refused_with_the_remedy(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 1e-9 / 0.3 * tone(), RATE, subtype="FLOAT")
    with pytest.raises(ValueError, match="is silent") as caught:
        open_dataset(tmp_path)
    assert "multiply all files by one factor" in str(caught.value)
    soundfile.write(tmp_path / "a.wav", 100 * 3e-4 / 0.3 * tone(), RATE, subtype="FLOAT")
    assert open_dataset(tmp_path).images.any()


@pytest.mark.parametrize("name", ["pixels", "random"])
def test_other_rates_give_the_same_features(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tones below 2 kHz, which all these rates hold."""
    rates, hertz = (8000, 11_025, 16_000, 22_050, 44_100, 48_000), (250, 400, 700, 1100, 1900)
    for rate in rates:
        (tmp_path / str(rate)).mkdir()
        for i, frequency in enumerate(hertz):
            x = tone(frequency, rate) * np.hanning(rate)
            soundfile.write(tmp_path / str(rate) / f"{i}.wav", x, rate)
    extractor = FeatureExtractor(
        name=name, architecture=None if name == "pixels" else "resnet-tiny"
    )

    def features(rate: int) -> torch.Tensor:
        return extractor.features(extractor.open(str(tmp_path / str(rate)), quiet=True).inputs)

    expected = features(16_000)
    spread = (expected - expected.mean(0)).norm()
    for rate in rates:
        assert (features(rate) - expected).norm() < 0.1 * spread, rate
    monkeypatch.setattr(FeatureExtractor, "_rate_for", lambda *_: None)  # the former rule
    assert (features(8000) - expected).norm() > 0.5 * spread


def wav() -> bytearray:
    """Return a WAV file of one second; the length of its samples is at 40."""
    samples = (32_768 * tone()).astype("<i2").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = b"WAVE" + form + struct.pack("<4sI", b"data", len(samples)) + samples
    return bytearray(struct.pack("<4sI", b"RIFF", len(body)) + body)


UNSET = (0, 0x7FFF_F000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFD0, 0xFFFF_FFFF)


@pytest.mark.parametrize("length", UNSET)
@pytest.mark.parametrize("which", ["both", "samples"])
def test_wav_streams_without_a_length_are_read_to_their_end(
    tmp_path: Path, length: int, which: str
) -> None:
    content = wav()
    for place in (4, 40) if which == "both" else (40,):
        content[place : place + 4] = struct.pack("<I", length)
    (tmp_path / "a.wav").write_bytes(content)
    np.testing.assert_allclose(read(tmp_path / "a.wav"), tone(), atol=1e-4)


LISTED = struct.pack("<4sI8sI", b"LIST", 18, b"INFOISFT", 5) + b"Lavf\0\0"  # as ffmpeg writes it


@pytest.mark.parametrize("chunk", [LISTED, struct.pack("<4sI", b"JUNK", 9) + bytes(10)])
def test_what_is_before_the_samples_is_no_sound(tmp_path: Path, chunk: bytes) -> None:
    content = wav()
    content[40:44] = bytes(4)
    content[36:36] = chunk
    (tmp_path / "a.wav").write_bytes(content)
    np.testing.assert_allclose(read(tmp_path / "a.wav"), tone(), atol=1e-4)


@pytest.mark.parametrize("end", [b"", struct.pack("<4sI", b"LIST", 5) + b"INFO.\0"])
def test_wav_files_without_samples_are_refused(tmp_path: Path, end: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(wav()[:40] + bytes(4) + end)
    with pytest.raises(UnreadableError, match="has no samples"):
        decode(tmp_path / "a.wav", RATE)


def mp3() -> bytes:
    path = Path("a.mp3")
    soundfile.write(path, tone(seconds=4.0), RATE)
    return path.read_bytes()


ID3 = b"ID3\3\0\0\0\0\0\x0a" + bytes(10)


@pytest.mark.usefixtures("in_tmp")
@pytest.mark.parametrize("end", ["wav", "flac", "ogg", "mp3"])
@pytest.mark.parametrize("before", [b"", ID3], ids=["plain", "tagged"])
def test_an_mp3_is_read_under_any_name_and_refused_if_cut(end: str, before: bytes) -> None:
    content, path = before + mp3(), Path(f"b.{end}")
    path.write_bytes(content)
    power = np.abs(np.fft.rfft(read(path)[RATE : 2 * RATE]))
    assert power.argmax() == 700
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UnreadableError, match="is cut short by"):
        decode(path, RATE)


def test_a_flac_stream_without_a_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, tone(), RATE)
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the last four bits of the byte before, and four bytes
    content[22:26] = bytes(4)
    path.write_bytes(content)
    with pytest.raises(UnreadableError, match="does not state its length: encode it again"):
        decode(path, RATE)
