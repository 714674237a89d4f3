import hashlib

import numpy as np
import pytest
from PIL import Image
from scipy.stats import chi2_contingency
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from axes import each_value
from forked import CONTEXT
from planting import plant
from widefield.data import open_dataset
from widefield.data.planted import PLANTS, Canvas, ImageFeature, read_plant
from widefield.data.planted.digits import DigitPack, Digits, digit_pool
from widefield.data.planted.letters import LETTERS
from widefield.data.planted.shapes import SHAPES, Shapes

NAMES = tuple(name for name, kind in PLANTS.items() if issubclass(kind, ImageFeature))
CANVAS = Canvas(shape=(32, 32, 3), seed=0, held_out=False)


def feature(name, **options):
    """A plant with options as a user types them."""
    return read_plant(name, {key: str(value) for key, value in options.items()})


def noise(n=40, side=32, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, channels), dtype=np.uint8)


def prepared(name, side=32, held_out=False, channels=3):
    return feature(name).draw(Canvas(shape=(side, side, channels), seed=0, held_out=held_out))


@pytest.mark.parametrize("name", NAMES)
@each_value(("channels", [1, 3]), ("side", [16, 32, 45, 96]))
def test_only_the_mask_changes_and_the_input_does_not(name, channels, side):
    images = noise(side=side, channels=channels)
    before = images.copy()
    planted = plant(images, feature(name))
    assert (images == before).all()
    assert planted.images.shape == images.shape
    assert planted.mask.shape == images.shape[:3]
    assert planted.labels.shape == (40,)
    assert (planted.images[~planted.mask] == images[~planted.mask]).all()
    assert planted.mask.any(axis=(1, 2)).all()
    changed = (planted.images != images).any(axis=-1)
    assert changed[planted.mask].mean() > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_images_that_are_not_square(name):
    planted = plant(np.zeros((50, 40, 64, 3), np.uint8), feature(name))
    rows, columns = planted.mask.any(axis=(0, 2)), planted.mask.any(axis=(0, 1))
    if name == "shapes":
        assert np.flatnonzero(rows)[[0, -1]].tolist() == [13, 26]
        assert np.flatnonzero(columns)[0] >= 21
        assert np.flatnonzero(columns)[-1] <= 42
    else:
        assert rows[:20].any()
        assert rows[20:].any()
        assert columns[:32].any()
        assert columns[32:].any()


@pytest.mark.parametrize("name", NAMES)
def test_an_overlay_depends_on_seed_index_and_pool_only(name):
    images = noise()
    whole = plant(images, feature(name), seed=5)
    some = np.array([31, 2, 17, 2])
    part = plant(images[some], feature(name), seed=5, index=some)
    assert (part.images == whole.images[some]).all()
    assert (part.labels == whole.labels[some]).all()
    assert (part.mask == whole.mask[some]).all()
    assert (plant(255 - images, feature(name), seed=5).mask == whole.mask).all()
    for other in (
        plant(images, feature(name), seed=6),
        plant(images, feature(name), seed=5, held_out=True),
    ):
        assert (other.labels != whole.labels).any()


def digest(index):
    images = np.full((len(index), 32, 32, 3), 99, np.uint8)
    content = hashlib.sha256()
    for name in NAMES:
        planted = plant(images, feature(name), seed=4, index=index)
        content.update(planted.images.tobytes() + planted.labels.tobytes())
    return content.hexdigest()


SOME = [9, 3, 0, 7, 1]


def digest_and_hash():
    return digest(SOME), hash("any text")


def test_another_process_draws_the_same():
    # A subset, in another order, with other hash randomization.
    with CONTEXT.Pool(1) as pool:
        found, hashed = pool.apply(digest_and_hash)
    assert found == digest(SOME)
    assert hashed != hash("any text")


@pytest.mark.parametrize("name", NAMES)
def test_classes_are_equally_likely_and_independent_of_other_plants(name):
    index = np.arange(20_000)
    labels = prepared(name).labels(index)
    overlay = prepared(name)
    expected = 20_000 * np.bincount(overlay.sprite_class) / len(overlay.sprite_class)
    assert (np.abs(np.bincount(labels) - expected) < 5 * np.sqrt(expected)).all()
    for other in set(NAMES) - {name}:
        table = np.zeros((len(overlay.classes), len(prepared(other).classes)))
        np.add.at(table, (labels, prepared(other).labels(index)), 1)
        assert chi2_contingency(table).pvalue > 1e-3


def test_digits_are_pasted_two_by_two_and_equal_a_pool_image():
    data = load_digits()
    gray = np.round(data.images * 255 / 16).astype(np.uint8)
    small = np.stack(
        [np.asarray(Image.fromarray(g).resize((10, 10), Image.Resampling.BICUBIC)) for g in gray]
    )
    background = np.full((60, 32, 32, 3), 90, np.uint8)
    planted = plant(background, feature("digits"))
    assert planted.classes == tuple("0123456789")
    for image, label, mask in zip(planted.images, planted.labels, planted.mask, strict=True):
        corners = [image[y : y + 10, x : x + 10] for y in (4, 16) for x in (4, 16)]
        assert all((corner == corners[0]).all() for corner in corners)
        assert (corners[0] == corners[0][..., :1]).all()  # white has no color
        pasted = np.where(small > 0, small, 90)
        match = np.flatnonzero((pasted == corners[0][..., 0]).all(axis=(1, 2)))
        assert label in data.target[match]
        assert mask[4:26, 4:26].sum() == mask.sum() == 4 * (small[match[0]] > 0).sum()


def test_held_out_digits_are_other_images_and_easy_for_who_knows_the_rest():
    data = load_digits()
    gray = np.round(data.images * 255 / 16).astype(np.uint8)
    train, held_out = digit_pool(gray, held_out=False), digit_pool(gray, held_out=True)
    assert sorted([*train, *held_out]) == list(range(1797))
    assert 0.15 < len(held_out) / 1797 < 0.25
    assert not {gray[i].tobytes() for i in train} & {gray[i].tobytes() for i in held_out}
    stamps = {pool: prepared("digits", held_out=pool) for pool in (False, True)}
    assert len(stamps[False].intensity) == len(train)
    flat = {
        pool: overlay.intensity.reshape(len(overlay.intensity), -1)
        for pool, overlay in stamps.items()
    }
    judge = KNeighborsClassifier(1).fit(flat[False], stamps[False].sprite_class)
    assert judge.score(flat[True], stamps[True].sprite_class) > 0.95


def test_copies_of_one_digit_image_share_a_pool():
    images = noise(30, 8, 1)[..., 0]
    twice = np.concatenate([images, images])
    for held_out in (False, True):
        pool = digit_pool(twice, held_out)
        assert {i % 30 for i in pool} == set(pool[pool < 30].tolist())
        assert len(pool) % 2 == 0


def test_shapes_cover_the_stated_area_with_the_stated_alpha():
    black, max_value = (
        plant(np.full((90, 32, 32, 3), v, np.uint8), feature("shapes")) for v in (0, 255)
    )
    assert black.classes == SHAPES
    rows, columns = black.mask.any(axis=(0, 2)), black.mask.any(axis=(0, 1))
    assert np.flatnonzero(rows)[[0, -1]].tolist() == [10, 20]
    assert np.flatnonzero(columns)[[0, -1]].tolist() == [10, 20]
    area = black.mask.sum(axis=(1, 2))
    for label, low, high in ((0, 81, 81), (1, 41, 54), (2, 61, 77)):
        assert ((low <= area) & (area <= high))[black.labels == label].all()
    # out = (1 - a) * background + a * color: the two backgrounds differ by (1 - a) * 255 = 75.
    squares = black.labels == 0
    through = max_value.images.astype(int) - black.images
    assert np.abs(through[squares][black.mask[squares]] - 75).max() <= 1
    color = black.images[squares].max(axis=(1, 2)) * (255 / 180)
    assert len({tuple(c) for c in color.tolist()}) == squares.sum()
    assert color.max() > 240
    assert color.min() < 15


def test_published_shapes_fill_the_center_third() -> None:
    """At 32 pixels rows and columns 10 to 21, 12 of each, in every image."""
    images = np.zeros((90, 32, 32, 3), np.uint8)
    overlay = feature("shapes", **{"as-published": ""}).draw(CANVAS)
    mask = overlay.apply(images, np.arange(90))
    labels = overlay.labels(np.arange(90))
    square = np.zeros((32, 32), dtype=bool)
    square[10:22, 10:22] = True
    assert (mask[labels == 0] == square).all()
    assert not mask[:, ~square].any()
    for label in (1, 2):  # a triangle and a circle touch all four sides
        for covered in mask[labels == label]:
            box = np.argwhere(covered)
            assert (box.min(0).tolist(), box.max(0).tolist()) == ([10, 10], [21, 21])
    through = plant(np.full((90, 32, 32, 3), 255, np.uint8), Shapes(as_published=True)).images
    assert np.abs(through.astype(int) - images)[labels == 0][:, 10:22, 10:22].max() <= 76
    assert (labels == prepared("shapes").labels(np.arange(90))).all()


@pytest.mark.parametrize(("side", "first", "last"), [(16, 5, 10), (45, 15, 30), (96, 32, 64)])
def test_published_shapes_scale_with_the_image(side: int, first: int, last: int) -> None:
    mask = plant(np.zeros((30, side, side, 3), np.uint8), Shapes(as_published=True)).mask
    assert np.flatnonzero(mask.any(axis=(0, 2)))[[0, -1]].tolist() == [first, last]


def test_published_shapes_by_name() -> None:
    dataset = open_dataset("photos+shapes:as-published:fresh", max_examples=16)
    assert dataset.spec == "photos:train+shapes:as-published:fresh"


def test_alpha_option_replaces_the_default():
    for name in NAMES:
        black, max_value = (
            plant(np.full((20, 32, 32, 3), v, np.uint8), feature(name, alpha=0.4)) for v in (0, 255)
        )
        through = max_value.images.astype(int) - black.images
        assert abs(through[black.mask].min() - 0.6 * 255) <= 1


def test_letters_stand_at_four_jittered_places():
    planted = plant(np.full((300, 32, 32, 3), 128, np.uint8), feature("letters"))
    assert planted.classes == LETTERS
    firsts = []
    for mask, label in zip(planted.mask, planted.labels, strict=True):
        if LETTERS[label] == "I":  # narrow and straight: its place can be read off the mask
            columns = np.flatnonzero(mask.any(axis=0))
            assert columns[0] <= 6
            assert columns[columns > 10][0] >= 16
            assert columns[-1] <= 22
            firsts.append(columns[0])
    assert len(set(firsts)) > 1
    assert (planted.mask.sum(axis=(1, 2)) > 4 * 8).all()


def test_each_letter_has_an_offset_of_its_own():
    planted = plant(np.full((600, 32, 32, 3), 128, np.uint8), feature("letters"))
    apart = set()
    for mask, label in zip(planted.mask, planted.labels, strict=True):
        if LETTERS[label] == "I":
            columns = np.flatnonzero(mask[:12].any(axis=0))  # of the upper two
            apart.add(columns[columns > 10][0] - columns[0])
    assert len(apart) > 3  # with one offset for all, the two differ by 16 or 15 columns


def test_the_mask_holds_where_neighboring_letters_touch():
    images = np.full((3000, 32, 32, 3), 128, np.uint8)
    planted = plant(images, feature("letters"))
    assert (planted.images[~planted.mask] == 128).all()


def test_held_out_letters_look_different_and_mean_the_same():
    train, held_out = prepared("letters"), prepared("letters", held_out=True)
    likeness = alike(held_out.alpha_mask, train.alpha_mask)
    assert np.diag(likeness).max() < 0.99
    assert likeness.argmax(axis=1).tolist() == list(range(26))
    assert held_out.alpha_mask.sum() > 1.2 * train.alpha_mask.sum()  # bolder
    assert np.diag(alike(train.alpha_mask, train.alpha_mask)) == pytest.approx(np.ones(26))


def alike(a, b):
    """Return the correlations of glyphs, [len(a), len(b)], at the best of 25 shifts."""
    a, b = (np.pad(x, ((0, 0), (3, 3), (3, 3))) for x in (a, b))
    shifts = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
    moved = [np.roll(a, shift, (1, 2)).reshape(len(a), -1) for shift in shifts]
    return np.max([np.corrcoef(x, b.reshape(len(b), -1))[: len(a), len(a) :] for x in moved], 0)


def test_gray_images_get_the_luminance_of_the_color():
    gray = plant(np.zeros((30, 32, 32, 1), np.uint8), feature("shapes"))
    color = plant(np.zeros((30, 32, 32, 3), np.uint8), feature("shapes"))
    luminance = color.images @ np.array([0.299, 0.587, 0.114])
    assert np.abs(gray.images[..., 0] - luminance).max() < 1.5
    assert (gray.labels == color.labels).all()


@pytest.mark.parametrize("name", NAMES)
def test_positions_scale_with_the_image(name):
    small = plant(np.zeros((200, 32, 32, 3), np.uint8), feature(name))
    large = plant(np.zeros((200, 96, 96, 3), np.uint8), feature(name))
    assert (small.labels == large.labels).all()
    share = large.mask.mean(axis=(1, 2)) / small.mask.mean(axis=(1, 2))
    assert share.min() > 0.5
    assert share.max() < 1.2


def test_digits_from_a_pack(tmp_path):
    images = np.zeros((50, 28, 28), np.uint8)
    for i in range(50):
        images[i, :, 14:] = 100 + i
    np.savez(
        tmp_path / "d.npz", images=images, labels=np.arange(50) % 2, classes=np.array(["p", "q"])
    )
    planted = plant(
        np.full((40, 32, 32, 3), 7, np.uint8), feature("digits", source=tmp_path / "d.npz")
    )
    assert planted.classes == ("p", "q")
    right_edge = planted.images[:, 4, 13, 0].astype(int) - 100
    assert (right_edge % 2 == planted.labels).all()
    spec = f"photos+digits:source={tmp_path}/d.npz"
    assert open_dataset(spec, max_examples=16).classes["digits"] == ("p", "q")


@pytest.mark.parametrize(
    ("name", "options", "images", "message"),
    [
        ("digits", {"source": "nowhere.npz"}, {}, r"no digits at 'nowhere\.npz'"),
        ("digits", {"source": "rgb.npz"}, {}, r"rgb.npz' holds no gray digits"),
        ("digits", {}, {"channels": 4}, "1 or 3 channels; these images have 4"),
        ("shapes", {}, {"side": 15}, "at least 16 pixels a side; these are 15x15"),
    ],
)
def test_what_cannot_be_planted(in_tmp, name, options, images, message):
    np.savez("rgb.npz", images=noise(2), labels=np.arange(2), classes=np.array(["a", "b"]))
    with pytest.raises(ValueError, match=message):
        plant(noise(2, **images), feature(name, **options))


GOLDEN = {
    "digits": [0, 1, 6, 4, 4, 0, 6, 0, 9, 0, 3, 4],
    "shapes": [2, 1, 1, 0, 0, 1, 1, 0, 2, 0, 1, 1],
    "letters": [22, 23, 0, 11, 9, 16, 0, 11, 8, 11, 1, 11],
}
"""Labels of the first images. Those of later plants are in their own tests."""


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_labels(name):
    # A change here changes every planted data set there is: runs on them could not be resumed.
    assert prepared(name).labels(np.arange(12)).tolist() == GOLDEN[name]


def four_copies(mask: np.ndarray, shift: tuple[int, int]) -> bool:
    """Whether `mask` is one 10x10 stamp at y, x in {4, 16}, all moved by `shift`."""
    y, x = 4 + shift[0], 4 + shift[1]
    stamp = mask[y : y + 10, x : x + 10]
    expected = np.zeros_like(mask)
    for top in (y, y + 12):
        for left in (x, x + 12):
            expected[top : top + 10, left : left + 10] = stamp
    return bool(stamp.any()) and np.array_equal(mask, expected)


@pytest.mark.parametrize("jitter", [0, 2, 4])
def test_jittered_digits_move_together_and_stay_inside(jitter: int) -> None:
    black = np.zeros((300, 32, 32, 3), np.uint8)
    overlay = feature("digits", jitter=jitter).draw(CANVAS)
    moves = range(-jitter, jitter + 1)
    found = set()
    for mask in overlay.apply(black, np.arange(300)):
        shifts = {(y, x) for y in moves for x in moves if four_copies(mask, (y, x))}
        assert shifts
        found |= shifts
    assert {y for y, _ in found} == set(moves) == {x for _, x in found}


def graded(name, **options):
    overlay = feature(name, **options).draw(CANVAS)
    images = np.zeros((60, 32, 32, 3), np.uint8)
    return images, overlay.apply(images, np.arange(60))


@pytest.mark.parametrize("name", NAMES)
def test_size_scales_what_is_covered(name):
    whole, half, large = (graded(name, size=s)[1].sum() for s in ("1", "0.5", "1.2"))
    assert half / whole == pytest.approx(0.25, abs=0.15)
    assert large / whole == pytest.approx(1.44, abs=0.2)


@pytest.mark.parametrize("name", NAMES)
def test_fixed_color_is_white_and_random_is_not(name):
    def is_gray(images):
        return (images.min(-1) == images.max(-1)).all()

    assert is_gray(graded(name, color="fixed")[0])
    assert not is_gray(graded(name, color="random")[0])


@pytest.mark.parametrize("name", ["shapes", "letters"])
def test_a_fixed_place_is_the_same_in_every_image(name):
    def corners(**options):
        boxes = [np.argwhere(mask) for mask in graded(name, **options)[1]]
        return {tuple(box.min(0)) for box in boxes}

    assert len(corners(place="fixed")) < len(corners()) / 2
    if name == "shapes":  # a triangle and a circle fill their box, whichever is drawn
        assert len(corners(place="fixed")) == 1


@pytest.mark.parametrize("grade", range(5))
def test_digits_stay_inside_images_of_any_size(grade):
    options = Digits.levels()[grade]
    pack = DigitPack(noise(40, 8, 1)[..., 0], np.arange(40) % 10, tuple("0123456789"))
    # At each of these a digit of grade 2 once ended beyond the border, but at the first three.
    for height in (16, 32, 96, 21, 23, 29, 31, 37, 45, 53, 61, 95):
        for width in (height, 28):
            canvas = Canvas(shape=(height, width, 3), seed=0, held_out=False)
            overlay = options.draw(canvas, pack)
            side = overlay.alpha_mask.shape[1:]
            farthest = overlay.places + overlay.jitter_range - 1 + side
            assert (overlay.places >= 0).all(), (height, width)
            assert (overlay.jitter_range >= 1).all(), (height, width)
            assert (farthest <= (height, width)).all(), (height, width)


@pytest.mark.parametrize("name", ["digits", "stacked-digits"])
def test_a_pack_that_leaves_a_class_without_digits_is_refused(name, tmp_path):
    data = load_digits()
    for count, enough in ((20, False), (1797, True)):
        pack = tmp_path / f"{count}.npz"
        gray = (15 * data.images[:count]).astype(np.uint8)
        names = np.array([str(k) for k in range(10)])
        np.savez(pack, images=gray, labels=data.target[:count], classes=names)
        rng = np.random.default_rng(0)
        images = {
            "x": rng.integers(0, 256, (40, 16, 16, 3), dtype=np.uint8),
            "y": np.arange(40) % 10,
        }
        np.savez(tmp_path / "images.npz", **images)
        spec = f"{tmp_path}/images.npz:test+{name}:source={pack}"
        if enough:
            assert len(open_dataset(spec)) > 0
        else:
            with pytest.raises(ValueError, match=r"too few digits of class '.': a fifth"):
                open_dataset(spec)
