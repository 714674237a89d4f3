import numpy as np
import pytest
from PIL import Image

from widefield.data import open_dataset
from widefield.data.builtin import photos


@pytest.fixture(scope="module")
def train():
    return open_dataset("photos")


@pytest.fixture(scope="module")
def test():
    return open_dataset("photos:test")


def picture(photo):
    with Image.open(photos._photo_path(photo)) as image:
        return np.asarray(image.convert("RGB"))


def test_sizes_and_balance(train, test):
    assert train.images.shape == (4000, 32, 32, 3)
    assert test.images.shape == (1000, 32, 32, 3)
    assert train.classes == test.classes == {"class": photos.PHOTOS}
    assert len(photos.PHOTOS) == 16
    assert np.bincount(train.labels["class"]).tolist() == [250] * 16
    assert set(np.bincount(test.labels["class"]).tolist()) == {62, 63}


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
def cut_anew():
    """Crops are cut once a process: cut them for this test alone."""
    photos._crops.cache_clear()
    yield
    photos._crops.cache_clear()


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


def test_all_crops_differ(train, test):
    digests = np.concatenate([train.digests(), test.digests()])
    assert len(np.unique(digests)) == 5000


def test_deterministic(train, cut_anew):
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
