"""Sounds as a source: files and packs, rates and lengths, segments, and what is mixed in."""

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from widefield.audits.bounds import _mixture
from widefield.data import Loader, open_dataset
from widefield.data.decode.sounds import UnreadableError, decode
from widefield.data.plant import draw
from widefield.data.planted import Background, Canvas, Clicks, Tone
from widefield.data.planted.sounds import SoundOverlay, as_loop
from widefield.data.readers.recordings import from_int16

RATE = 8000


def tone(hertz: float, seconds: float = 1.0, rate: int = RATE, level: float = 0.3) -> np.ndarray:
    return level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def folder_of(place: Path, count: int = 8, seconds: float = 1.0, rate: int = RATE) -> Path:
    """Make sounds of two classes, of other frequencies."""
    for i in range(count):
        name, hertz = (("low", 300.0), ("high", 1500.0))[i % 2]
        (place / name).mkdir(parents=True, exist_ok=True)
        soundfile.write(place / name / f"{i:02d}.wav", tone(hertz + i, seconds, rate), rate)
    return place


def pack(place: Path, lengths: list[int], rate: int = RATE) -> Path:
    rng = np.random.default_rng(0)
    clips = [rng.integers(-9000, 9000, n) for n in lengths]
    clips = [(clip - round(clip.mean())).astype(np.int16) for clip in clips]  # without offset
    np.savez(
        place,
        audio=np.concatenate(clips),
        offsets=np.cumsum([0, *lengths]),
        labels=np.arange(len(lengths)) % 2,
        classes=np.array(["one", "two"]),
        speakers=np.arange(len(lengths)) % 3,
        speaker_names=np.array(["a", "b", "c"]),
        sample_rate=rate,
    )
    return place


def noise_pack(place: Path) -> Path:
    """Make two backgrounds whose train part differs from the part that is held out."""
    rng = np.random.default_rng(1)
    clips = []
    for spread in (900, 9000):
        clip = rng.normal(0, spread, 40_000).clip(-30_000, 30_000)
        clip[32_000:] = np.sign(clip[32_000:]) * spread  # held out: two values alone
        clips.append(clip.astype(np.int16))
    np.savez(
        place,
        audio=np.concatenate(clips),
        offsets=[0, 40_000, 80_000],
        labels=[0, 1],
        classes=np.array(["quiet", "loud"]),
        sample_rate=RATE,
    )
    return place


def test_a_folder_and_its_classes(tmp_path: Path) -> None:
    dataset = open_dataset(folder_of(tmp_path))
    assert (dataset.kind, dataset.rate) == ("sounds", RATE)
    assert dataset.images.shape == (8, 1, RATE, 1)
    assert dataset.classes == {"class": ("high", "low")}
    assert dataset.paths[0] == "high/01.wav"
    expected = tone(1501.0)
    np.testing.assert_allclose(from_int16(dataset.images[0, 0, :, 0]), expected, atol=1e-4)


@pytest.mark.parametrize("rate", [4000, 11_025, 16_000, 44_100])
def test_resampling_keeps_a_tone(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", tone(700.0, rate=rate), rate)
    dataset = open_dataset(tmp_path, sample_rate=RATE)
    middle = slice(500, -500)
    found = from_int16(dataset.images[0, 0, :, 0])[middle]
    np.testing.assert_allclose(found, tone(700.0)[middle], atol=2e-3)


def test_high_rates_are_brought_down_and_others_kept(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(700.0, rate=192_000), 192_000)
    assert open_dataset(tmp_path).rate == 16_000
    low = folder_of(tmp_path / "low", rate=11_025)
    assert open_dataset(low).rate == 11_025


@pytest.mark.parametrize("end", ["flac", "ogg", "mp3"])
def test_other_formats_are_read(tmp_path: Path, end: str) -> None:
    soundfile.write(tmp_path / f"a.{end}", tone(700.0, 2.0, rate=16_000), 16_000)
    found = from_int16(open_dataset(tmp_path).images[0, 0, :, 0])
    power = np.abs(np.fft.rfft(found))
    assert power.argmax() == 700


def test_channels_are_averaged(tmp_path: Path) -> None:
    eight = np.stack([(i + 1) * tone(700.0) / 8 for i in range(8)], axis=1)
    soundfile.write(tmp_path / "a.wav", eight, RATE)
    found = from_int16(open_dataset(tmp_path).images[0, 0, :, 0])
    np.testing.assert_allclose(found, 4.5 / 8 * tone(700.0), atol=1e-3)


def test_short_ones_stand_in_the_middle_of_silence(tmp_path: Path) -> None:
    dataset = open_dataset(pack(tmp_path / "p.npz", [2000, 8000, 999]))
    assert dataset.clips is None
    one = dataset.images[0, 0, :, 0]
    assert not one[:3000].any()
    assert not one[5000:].any()
    assert (one[3000:5000] != 0).mean() > 0.99


def test_the_loudest_of_long_ones_is_shown_and_all_are_drawn_to_train(tmp_path: Path) -> None:
    path = pack(tmp_path / "p.npz", [24_000] * 6)
    dataset = open_dataset(path)
    with np.load(path) as arrays:
        whole = arrays["audio"].reshape(6, -1)
    blocks = whole.reshape(6, 24, 1000).var(2)  # eighths of an example
    loudest = 1000 * np.lib.stride_tricks.sliding_window_view(blocks, 8, 1).sum(2).argmax(1)
    expected = [sound[start : start + 8000] for sound, start in zip(whole, loudest, strict=True)]
    np.testing.assert_array_equal(dataset.images[:, 0, :, 0], expected)
    loader = Loader(dataset, batch_size=6, device=torch.device("cpu"), seed=3)
    places = []
    for epoch in range(40):
        (batch,) = loader.epoch(epoch)
        sounds = (batch.x[:, 0, 0].numpy() * 32_768).astype(np.int16)
        for index, sound in zip(batch.index.tolist(), sounds, strict=True):
            windows = np.lib.stride_tricks.sliding_window_view(whole[index], 8000)
            (found,) = np.flatnonzero((windows[:, :50] == sound[:50]).all(1))
            np.testing.assert_array_equal(windows[found], sound)
            places.append(found)
    assert len(set(places)) > 200
    assert np.mean(places) == pytest.approx(8000, rel=0.1)
    assert min(places) < 500 < 15_500 < max(places)


def test_all_of_a_long_sound_is_in_its_digest() -> None:
    long = np.random.default_rng(0).integers(-9000, 9000, (3, 3 * RATE)).astype(np.int16)

    def digests(waves: np.ndarray) -> list[int]:
        return open_dataset({"sounds": waves, "sample_rate": np.array(RATE)}).digests().tolist()

    other = long.copy()
    other[1, 5] += 1  # far from the middle, which is what is shown
    assert [a == b for a, b in zip(digests(long), digests(other), strict=True)] == [
        True,
        False,
        True,
    ]
    assert digests(long[:, : 2 * RATE]) != digests(long)


def test_the_digest_of_a_short_sound_does_not_depend_on_its_neighbors(tmp_path: Path) -> None:
    """Else a longer recording that joins a run would change all others, and hide what is shared."""
    alone = open_dataset(pack(tmp_path / "p.npz", [2000, RATE, 999]))
    beside = open_dataset(pack(tmp_path / "q.npz", [2000, RATE, 999, 2 * RATE]))
    np.testing.assert_array_equal(beside.digests()[:3], alone.digests())


def test_what_is_planted_on_long_sounds_is_in_their_digests() -> None:
    """An audit keeps what it measured by them, one grade beside the other."""
    long = np.random.default_rng(0).integers(-9000, 9000, (4, 2 * RATE)).astype(np.int16)
    dataset = open_dataset({"sounds": long, "sample_rate": np.array(RATE)})
    canvas = Canvas(shape=dataset.images.shape[1:], seed=0, held_out=False, rate=RATE)
    grades = [dataset.with_overlay(grade.draw(canvas)) for grade in Tone.levels()]
    assert len({tuple(grade.digests().tolist()) for grade in grades}) == len(grades)
    mixture = _mixture(grades)
    heard, _ = mixture.read(np.arange(4), read=1)
    np.testing.assert_array_equal(heard, [grades[i].images[i] for i in range(4)])


def test_a_background_that_is_silent_for_a_while_leaves_the_sound(tmp_path: Path) -> None:
    bank = np.zeros(4 * RATE, np.float32)
    bank[:RATE] = np.random.default_rng(0).normal(size=RATE)
    overlay = SoundOverlay(
        name="background",
        classes=("hum",),
        loops=(bank,),
        snr=(0, 0),
        by_peak=True,
        seed=0,
        held_out=False,
    )
    sounds = np.full((30, 1, RATE, 1), 900, np.int16)
    with np.errstate(all="raise"):
        overlay.apply(sounds, np.arange(30))
    assert (np.abs(sounds).max((1, 2, 3)) > 8000).all()


def test_packs_have_their_tasks_and_lengths(tmp_path: Path) -> None:
    dataset = open_dataset(pack(tmp_path / "p.npz", [4000] * 6), seconds=0.25, sample_rate=4000)
    assert dataset.images.shape == (6, 1, 1000, 1)
    assert dataset.classes == {"class": ("one", "two"), "speaker": ("a", "b", "c")}
    assert dataset.labels["speaker"].tolist() == [0, 1, 2, 0, 1, 2]


def test_what_was_opened_can_be_opened_again_from_memory(tmp_path: Path) -> None:
    dataset = open_dataset(pack(tmp_path / "p.npz", [8000] * 6))
    again = open_dataset(dataset.arrays())
    np.testing.assert_array_equal(again.images, dataset.images)
    assert again.rate == RATE
    np.testing.assert_array_equal(again.labels["class"], dataset.labels["class"])


def mixed(tmp_path: Path, options: str = "", split: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Return the plain sounds and what was added to each."""
    path = pack(tmp_path / "p.npz", [8000] * 60)
    noise = noise_pack(tmp_path / "n.npz")
    spec = f"{path}{split}"
    plain, planted = open_dataset(spec), open_dataset(f"{spec}+background:{noise}{options}")
    assert planted.classes["background"] == ("quiet", "loud")
    one, two = (from_int16(d.images[:, 0, :, 0]).astype(np.float64) for d in (plain, planted))
    return one, two - one


def test_the_ratio_of_signal_to_noise_is_as_stated(tmp_path: Path) -> None:
    sound, noise = mixed(tmp_path)
    ratio = 10 * np.log10((sound**2).mean(1) / (noise**2).mean(1))
    assert -0.7 < ratio.min() < 2
    assert 8 < ratio.max() < 10.7
    sound, noise = mixed(tmp_path, ":low=6:high=6")
    ratio = 10 * np.log10((sound**2).mean(1) / (noise**2).mean(1))
    np.testing.assert_allclose(ratio, 6, atol=0.7)  # a segment is a little above or below the mean


def test_train_and_test_hear_other_parts_of_a_recording(tmp_path: Path) -> None:
    def values(split: str) -> float:
        _, noise = mixed(tmp_path, ":low=0:high=0", split)
        return float(np.median([len(np.unique(row.round(2))) for row in noise]))

    assert values(":test") < 12 < values(":train")


def many_noises(place: Path) -> tuple[Path, np.ndarray]:
    """Make five recordings of a background, some very quiet; return them as samples too."""
    (place / "hum").mkdir(parents=True)
    (place / "hiss").mkdir()
    noise = np.random.default_rng(2).normal(0, 1, (6, 5 * RATE))
    noise *= np.array([0.2, 0.001, 0.05, 0.002, 0.1, 0.1])[:, None]
    for i, x in enumerate(noise):
        soundfile.write(place / ("hum", "hiss")[i == 5] / f"{i}.wav", x, RATE, subtype="FLOAT")
    return place, noise


@pytest.mark.parametrize("held_out", [False, True])
def test_each_of_many_recordings_is_divided_and_heard_at_one_level(
    tmp_path: Path, held_out: bool
) -> None:
    source, noise = many_noises(tmp_path)
    canvas = Canvas(shape=(1, RATE // 4, 1), seed=0, held_out=held_out, rate=RATE)
    _, bank = draw(Background(source=str(source)), canvas).loops
    parts = bank.reshape(5, -1)
    own = noise[:5, 4 * RATE :] if held_out else noise[:5, : 4 * RATE]
    np.testing.assert_allclose((parts.astype(np.float64) ** 2).mean(1), 1, rtol=1e-3)
    alike = [np.corrcoef(part, x)[0, 1] for part, x in zip(parts, own, strict=True)]
    assert min(alike) > 0.99


def test_one_recording_a_class_is_divided_and_scaled_once(tmp_path: Path) -> None:
    source = noise_pack(tmp_path / "n.npz")
    canvas = Canvas(shape=(1, RATE, 1), seed=0, held_out=False, rate=RATE)
    loops = draw(Background(source=str(source)), canvas).loops
    with np.load(source) as arrays:
        clips = from_int16(arrays["audio"]).reshape(2, -1)
    for bank, clip in zip(loops, clips, strict=True):
        np.testing.assert_array_equal(bank, as_loop(clip[:32_000], RATE))


def test_recordings_too_short_to_be_divided_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "n.npz"
    np.savez(path, audio=np.ones(4, np.int16), offsets=[0, 2, 4], labels=[0, 1], sample_rate=RATE)
    canvas = Canvas(shape=(1, RATE, 1), seed=0, held_out=True, rate=RATE)
    with pytest.raises(ValueError, match="too short to be divided 80 / 20: give longer ones"):
        draw(Background(source=str(path)), canvas)


def test_as_published_shares_them_and_draws_anew(tmp_path: Path) -> None:
    path, noise = pack(tmp_path / "p.npz", [8000] * 30), noise_pack(tmp_path / "n.npz")
    dataset = open_dataset(f"{path}+background:{noise}:as-published")
    index = np.arange(30)
    one, two = dataset.read(index, 1), dataset.read(index, 2)
    assert (one[1]["background"] != two[1]["background"]).mean() == pytest.approx(0.5, abs=0.25)
    assert (one[0] != two[0]).any((1, 2, 3)).all()
    plain = open_dataset(f"{path}+background:{noise}")
    same = [plain.read(index, read) for read in (1, 2)]
    np.testing.assert_array_equal(same[0][0], same[1][0])


def test_segments_of_long_sounds_keep_their_background(tmp_path: Path) -> None:
    path, noise = pack(tmp_path / "p.npz", [24_000] * 12), noise_pack(tmp_path / "n.npz")
    dataset = open_dataset(f"{path}+background:{noise}:low=-20:high=-20")
    loader = Loader(dataset, batch_size=12, device=torch.device("cpu"))
    for epoch in (0, 1):
        (batch,) = loader.epoch(epoch)
        expected = dataset.labels["background"][batch.index.numpy()]
        np.testing.assert_array_equal(batch.labels["background"].numpy(), expected)


@pytest.mark.parametrize("feature", [Tone(level=0), Clicks(level=0), Background(low=0, high=0)])
def test_made_sounds_can_be_told_apart_by_what_repeats_in_them(
    feature: Tone | Clicks | Background,
) -> None:
    canvas = Canvas(shape=(1, 4000, 1), seed=0, held_out=False, rate=4000)
    overlay = feature.draw(canvas)
    index = np.arange(60)
    power = np.abs(np.fft.rfft(overlay.segments(index, 4000))) ** 2
    repeats = np.fft.irfft(power / power.sum(1, keepdims=True))[:, :1500]
    labels = overlay.labels(index)
    centers = np.stack([repeats[labels == k].mean(0) for k in range(3)])
    nearest = ((repeats[:, None] - centers) ** 2).sum(2).argmin(1)
    assert (nearest == labels).mean() > 0.9
    assert [len(type(feature).levels()), len(overlay.classes)] == [5, 3]


def broken_files(place: Path) -> dict[str, str]:
    """Make one file of each kind that cannot be used; return what is said of each."""
    soundfile.write(place / "whole.wav", tone(500.0), RATE)
    data = (place / "whole.wav").read_bytes()
    (place / "whole.wav").unlink()
    (place / "cut.wav").write_bytes(data[:6000])
    (place / "empty.wav").write_bytes(b"")
    (place / "no_samples.wav").write_bytes(data[:40] + struct.pack("<I", 0))
    (place / "text.mp3").write_text("no sound")
    (place / "no_rate.wav").write_bytes(data[:24] + struct.pack("<I", 0) + data[28:])
    soundfile.write(place / "cut.mp3", np.tile(tone(500.0), 8), RATE)
    mp3 = (place / "cut.mp3").read_bytes()
    (place / "cut.mp3").write_bytes(mp3[: len(mp3) // 2])
    soundfile.write(place / "silent.wav", np.zeros(RATE), RATE)
    nan = tone(500.0)
    nan[77] = np.nan
    soundfile.write(place / "nan.wav", nan, RATE, subtype="FLOAT")
    soundfile.write(place / "units.wav", 32_767 * tone(500.0, level=1), RATE, subtype="FLOAT")
    soundfile.write(place / "long.flac", np.zeros(4_000 * 3601, np.int16), 4_000)
    return {
        "cut.wav": "cut short",
        "cut.mp3": "cut short by",
        "empty.wav": "is empty",
        "no_samples.wav": "",
        "text.mp3": "has an unknown audio format",
        "no_rate.wav": "",
        "silent.wav": "is silent",
        "nan.wav": "holds NaN",
        "units.wav": "holds samples up to 32767, beyond [-1, 1]: divide them by",
        "long.flac": "1.0 hours long",
    }


def test_bad_files_are_skipped_and_counted(tmp_path: Path) -> None:
    folder_of(tmp_path, 200, seconds=0.05)
    said = broken_files(tmp_path)
    dataset = open_dataset(tmp_path, seconds=0.05)
    assert len(dataset) == 200
    assert {skipped.path for skipped in dataset.skipped} == said.keys()
    for skipped in dataset.skipped:
        assert said[skipped.path] in skipped.reason
        assert skipped.reason.isprintable()
    assert any("10 " in note and "cut.mp3" in note for note in dataset.notes)
    again = open_dataset(tmp_path, seconds=0.05)
    np.testing.assert_array_equal(again.images, dataset.images)


CONTAINERS = [("aiff", "PCM_16"), ("aif", "FLOAT"), ("ogg", "VORBIS"), ("oga", "OPUS")]


@pytest.mark.parametrize(("end", "coding"), CONTAINERS)
def test_files_that_are_cut_anywhere_are_not_read_as_whole(
    tmp_path: Path, end: str, coding: str
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, 10 * RATE)
    kind = "AIFF" if end.startswith("ai") else "OGG"
    soundfile.write(tmp_path / "a", noise, RATE, format=kind, subtype=coding)
    content = (tmp_path / "a").read_bytes()
    file = tmp_path / f"a.{end}"
    for missing in (2, 100, len(content) // 10, len(content) // 2):
        file.write_bytes(content[:-missing])
        with pytest.raises(UnreadableError, match="is cut short"):
            decode(file, RATE)
    last_page = content.rfind(b"OggS")
    if last_page > 0:
        file.write_bytes(content[:last_page])
        with pytest.raises(UnreadableError, match="is cut short"):
            decode(file, RATE)


@pytest.mark.parametrize(("end", "coding"), CONTAINERS)
@pytest.mark.parametrize("count", [300, 4_001, 40 * RATE])
def test_whole_files_are_read(tmp_path: Path, end: str, coding: str, count: int) -> None:
    file = tmp_path / f"a.{end}"
    noise = np.random.default_rng(0).normal(0, 0.1, (count, 2))
    kind = "AIFF" if end.startswith("ai") else "OGG"
    soundfile.write(file, noise, RATE, format=kind, subtype=coding)
    samples, _ = decode(file, RATE)
    assert len(samples) == count


def test_too_many_bad_files_are_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, 8)
    broken_files(tmp_path)
    with pytest.raises(ValueError, match="cannot be read, more than 5%"):
        open_dataset(tmp_path)


def test_with_a_limit_others_take_the_place_of_unreadable_files(tmp_path: Path) -> None:
    """And failures count against all files, not against those that are taken."""
    folder_of(tmp_path, 80, seconds=0.05)
    cut = (tmp_path / "low" / "00.wav").read_bytes()[:-200]
    (tmp_path / "low" / "00.wav").write_bytes(cut)  # what its header says
    for name in ("high/01.wav", "low/02.wav"):  # what only decoding finds
        soundfile.write(tmp_path / name, np.zeros(400), RATE)
    dataset = open_dataset(tmp_path, seconds=0.05, max_examples=10)
    assert (len(dataset), np.bincount(dataset.labels["class"]).tolist()) == (10, [5, 5])
    assert [s.path for s in dataset.skipped] == ["high/01.wav", "low/00.wav", "low/02.wav"]
    whole = open_dataset(tmp_path, seconds=0.05)
    row = [whole.paths.index(path) for path in dataset.paths]
    np.testing.assert_array_equal(dataset.images, whole.images[row])
    assert len(open_dataset(tmp_path, seconds=0.05, max_examples=80)) == 77
    with pytest.raises(ValueError, match="max_examples is 81 and there are 80 examples"):
        open_dataset(tmp_path, seconds=0.05, max_examples=81)


def test_with_a_limit_others_take_the_place_of_silent_clips(tmp_path: Path) -> None:
    with np.load(pack(tmp_path / "p.npz", [RATE] * 40)) as arrays:
        held = dict(arrays)
    held["audio"][: 2 * RATE] = 0
    dataset = open_dataset(held, max_examples=6)
    assert dataset.paths == [f"row {i}" for i in range(2, 8)]
    assert [s.path for s in dataset.skipped] == ["row 0", "row 1"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("+digits", "planted in images; these are sounds: choose tone, clicks or background"),
        ("+background:nowhere.npz", "no recordings at 'nowhere.npz'"),
        ("+background:low=9:high=3", "low=9 above high=3"),
        ("+tone:level=99", "level of '\\+tone' must be .* dB, got 99.0"),
    ],
)
def test_plants_that_do_not_fit_are_refused(tmp_path: Path, spec: str, words: str) -> None:
    path = pack(tmp_path / "p.npz", [8000] * 4)
    with pytest.raises(ValueError, match=words):
        open_dataset(f"{path}{spec}")


def test_sounds_are_not_planted_in_images() -> None:
    with pytest.raises(ValueError, match="planted in sounds"):
        open_dataset("photos+tone", max_examples=4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sample_rate": 0}, "'sample_rate' is 0"),
        ({"sample_rate": None}, "without key 'sample_rate'"),
        ({"offsets": [0, 10, 5]}, "'offsets' must rise"),
        ({"audio": np.zeros((2, 8_000), np.int16)}, r"'audio' has shape \[2, 8000\]"),
        ({"audio": np.full(16_000, np.nan)}, "not finite"),
        ({"audio": np.full(16_000, 3.0)}, "float beyond"),
        ({"audio": np.zeros(16_000, np.int64)}, "expected int16"),
    ],
)
def test_bad_packs_are_refused_in_one_line(tmp_path: Path, change: dict, words: str) -> None:
    with np.load(pack(tmp_path / "p.npz", [8000, 8000])) as arrays:
        held = {**arrays, **change}
    with pytest.raises(ValueError, match=words) as caught:
        open_dataset({key: np.asarray(value) for key, value in held.items() if value is not None})
    assert "\n" not in str(caught.value)


def test_examples_have_a_least_length(tmp_path: Path) -> None:
    path = pack(tmp_path / "p.npz", [8000] * 4)
    with pytest.raises(ValueError, match=r"choose seconds of 0.032 or more"):
        open_dataset(path, seconds=0.01)
    with pytest.raises(ValueError, match="leave image_size out"):
        open_dataset(path, image_size=32)
