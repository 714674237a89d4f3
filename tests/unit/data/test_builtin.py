"""Built-in data: the same on every machine, and what their tasks say."""

import numpy as np
import pytest
from PIL import Image

from widefield.data import open_dataset
from widefield.data.builtin import photos, spoken
from widefield.data.builtin.motion import ACTIVITIES, GRAVITY, PLACES, RATE, read_motion
from widefield.data.builtin.spoken import SAMPLE_RATE, SPEAKERS, WORDS, read_spoken
from widefield.data.examples import Examples
from widefield.data.readers.recordings import from_int16

SETS = {
    "photos": (photos.read_photos, 4000, 1000, (32, 32, 3), {"class": photos.PHOTOS}),
    "spoken": (read_spoken, 2400, 600, (1, 4000, 1), {"class": WORDS, "speaker": (*SPEAKERS,)}),
    "motion": (read_motion, 2400, 600, (1, 128, 3), {"class": (*ACTIVITIES,), "place": (*PLACES,)}),
}
"""Name -> reader, training and test examples, shape of one, and the tasks."""


@pytest.mark.parametrize("name", SETS)
def test_splits_are_other_draws_and_balanced(name):
    read, *counts, shape, classes = SETS[name]
    few = {"seconds": 0.5, "max_examples": 300} if name == "spoken" else {}
    drawn = []
    for split, count in zip(("train", "test"), counts, strict=True):
        labels = read(split).labels
        assert labels.keys() == classes.keys()
        assert {len(ids) for ids in labels.values()} == {count}
        assert np.ptp(np.bincount(labels["class"])) <= 1
        for task in classes:  # 2,400 / 18 is no integer
            assert np.ptp(np.bincount(labels[task])) <= len(classes["class"])
        part = open_dataset(f"{name}:{split}", **few)
        assert part.images.shape == (few.get("max_examples", count), *shape)
        assert part.classes == classes
        assert part.rate == (SAMPLE_RATE if name == "spoken" else None)
        drawn += [x.tobytes() for x in part.images]
    assert len(set(drawn)) == len(drawn)
    spoken._clip.cache_clear()  # they are synthesized anew
    again = open_dataset(f"{name}:test", **{**few, "max_examples": 40})
    assert (again.images == part.images[np.isin(part.paths, again.paths)]).all()


@pytest.fixture(scope="module")
def train():
    return open_dataset("photos")


def picture(photo):
    with Image.open(photos._photo_path(photo)) as image:
        return np.asarray(image.convert("RGB"))


def test_names_are_sorted_and_say_the_class(train):
    assert train.paths == sorted(train.paths)
    assert [p.split("/")[0] for p in train.paths] == [
        photos.PHOTOS[c] for c in train.labels["class"]
    ]


@pytest.mark.parametrize("photo", photos.PHOTOS)
def test_no_training_window_shares_a_pixel_with_a_test_window(photo):
    image = picture(photo)
    seen = {split: np.zeros(image.shape[:2], dtype=bool) for split in ("train", "test")}
    for split, canvas in seen.items():
        for left, top, right, bottom in photos.windows(photo, image, split, 250):
            assert 0 <= left < right <= image.shape[1]
            assert 0 <= top < bottom <= image.shape[0]
            assert min(image.shape[:2]) // 8 <= right - left <= min(image.shape[:2]) // 4
            assert right - left == bottom - top
            canvas[top:bottom, left:right] = True
    assert not (seen["train"] & seen["test"]).any()
    assert seen["train"].mean() > 0.25
    assert seen["test"].mean() > 0.1


@pytest.fixture
def cut_anew(monkeypatch):
    """Crops are cut once a process: cut them for this test alone."""
    monkeypatch.setattr(photos, "_crops", photos._crops.__wrapped__)


def test_no_pixel_beyond_the_window_is_read(tmp_path, monkeypatch, cut_anew):
    # Test cells red, training cells blue: one foreign pixel in a filter would show.
    painted = np.zeros((300, 420, 3), dtype=np.uint8)
    painted[..., 2] = 255
    for cell in range(3):
        painted[100 * cell : 100 * cell + 100, 140 * cell : 140 * cell + 140] = [255, 0, 0]
    Image.fromarray(painted).save(tmp_path / "painted.png")
    monkeypatch.setattr(photos, "_photo_path", lambda photo: tmp_path / "painted.png")
    assert (photos.read_photos("train").pixels == [0, 0, 255]).all()
    assert (photos.read_photos("test").pixels == [255, 0, 0]).all()


def test_a_crop_is_its_window_resized(train):
    image = picture("coffee")
    number = 7
    left, top, right, bottom = photos.windows("coffee", image, "train", 250)[number].tolist()
    cut = Image.fromarray(image[top:bottom, left:right]).resize((32, 32), Image.Resampling.BICUBIC)
    row = train.paths.index(f"coffee/{number:04d}")
    assert (train.images[row] == np.asarray(cut)).all()


def test_crops_are_cut_anew_as_before(train, cut_anew):
    assert (open_dataset("photos").images == train.images).all()


def test_no_gray_class_can_be_told_by_color(train):
    gray = [photos.PHOTOS.index(p) for p in ("brick", "camera", "coins", "grass", "gravel", "moon")]
    pixels = train.images[np.isin(train.labels["class"], gray)]
    assert (pixels == pixels[..., :1]).all()


@pytest.mark.parametrize("size", [16, 64])
def test_image_size(size):
    assert open_dataset("photos:test", image_size=size).images.shape == (1000, size, size, 3)


@pytest.mark.parametrize("size", [15, 65])
def test_image_size_out_of_range(size):
    with pytest.raises(ValueError, match=f"image_size {size} .* choose 16 to 64"):
        open_dataset("photos", image_size=size)


def test_crops_are_the_callers_own():
    photos.read_photos("test").pixels[:] = 0
    assert photos.read_photos("test").pixels.any()


def test_a_missing_photograph_is_named(monkeypatch, cut_anew):
    monkeypatch.setattr(photos, "PHOTOS", ("no_such_photograph",))
    with pytest.raises(ValueError, match="'no_such_photograph' is missing from skimage"):
        open_dataset("photos")


def clips(examples: Examples) -> np.ndarray:
    recordings = examples.recordings
    assert recordings is not None
    return np.stack([from_int16(clip) for clip in recordings.sounds])


def test_speakers_differ_in_pitch_and_words_in_resonances() -> None:
    examples = read_spoken("test")
    x = clips(examples)
    middle = x[:, 1000:3000] - x[:, 1000:3000].mean(1, keepdims=True)
    power = np.abs(np.fft.rfft(middle, n=8192)) ** 2
    repeats = np.fft.irfft(power)[:, :200]
    period = 20 + repeats[:, 20:].argmax(1)
    for speaker, (pitch, _) in enumerate(SPEAKERS.values()):
        found = SAMPLE_RATE / np.median(period[examples.labels["speaker"] == speaker])
        octaves = np.log2(found / pitch)
        assert abs(octaves - round(octaves)) < 0.15
    hertz = np.fft.rfftfreq(8192, 1 / SAMPLE_RATE)
    high = power[:, hertz > 1600].sum(1) / power.sum(1)
    with_i = [i for i, word in enumerate(WORDS) if "i" in word or "e" in word]
    has = np.isin(examples.labels["class"], with_i)
    assert high[has].mean() > 1.5 * high[~has].mean()


def test_gravity_pulls_along_any_axis() -> None:
    means = open_dataset("motion").images[:, 0].mean(1)
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), GRAVITY, atol=0.7)
    for axis in range(3):  # a direction drawn evenly has each coordinate uniform in [-1, 1]
        shares = np.histogram(means[:, axis] / GRAVITY, 4, (-1.06, 1.06))[0] / len(means)
        np.testing.assert_allclose(shares, 0.25, atol=0.05)


def upward(split: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the acceleration along gravity, which is where the bursts are."""
    examples = read_motion(split)
    assert examples.pixels is not None
    x = examples.pixels[:, 0].astype(np.float64)
    down = x.mean(1, keepdims=True)
    down /= np.linalg.norm(down, axis=2, keepdims=True)
    along = (x * down).sum(2)
    return along - along.mean(1, keepdims=True), examples.labels


def test_an_activity_is_its_cadence_and_how_sudden_its_bursts_are() -> None:
    along, labels = upward("train")
    power = np.abs(np.fft.rfft(along, n=1024)) ** 2
    hertz = np.fft.rfftfreq(1024, 1 / RATE)
    # At the hip of those who run: the strongest period is the cadence.
    hip = labels["place"] == list(PLACES).index("hip")
    running = hip & (labels["class"] == list(ACTIVITIES).index("running"))
    found = np.median(hertz[power[running].argmax(1)])
    assert abs(found / ACTIVITIES["running"].cadence - 1) < 0.15
    # Bursts that are more sudden have a larger fourth moment.
    peaks = (along**4).mean(1) / (along**2).mean(1) ** 2
    skipping, cycling = (
        peaks[hip & (labels["class"] == list(ACTIVITIES).index(name))].mean()
        for name in ("skipping", "cycling")
    )
    assert skipping > 1.5 * cycling


def test_neither_strength_nor_raw_samples_give_the_activity_away() -> None:
    along, labels = upward("train")
    strength = along.std(1)
    for one, other in (("walking", "stairs"), ("running", "skipping")):
        a, b = (strength[labels["class"] == list(ACTIVITIES).index(k)] for k in (one, other))
        assert np.quantile(a, 0.25) < np.quantile(b, 0.75)
        assert np.quantile(b, 0.25) < np.quantile(a, 0.75)
    x = open_dataset("motion").images.reshape(2400, -1)
    centers = np.stack([x[labels["class"] == k].mean(0) for k in range(len(ACTIVITIES))])
    test = open_dataset("motion:test")
    near = ((test.images.reshape(600, 1, -1) - centers) ** 2).sum(2).argmin(1)
    assert (near == test.labels["class"]).mean() < 0.3
