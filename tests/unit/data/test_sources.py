from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torchvision.datasets
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from planting import plant
from widefield.data import open_dataset
from widefield.data.planted import Digits, Letters, Shapes
from widefield.data.select import balanced_subset


def npz(tmp_path, n=200, **labels):
    x = np.random.default_rng(0).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=x, **labels)
    return str(tmp_path / "a.npz"), x


def test_spec_composes_source_and_plants():
    plain = open_dataset("photos:test")
    dataset = open_dataset("photos:test+shapes+letters:alpha=0.5", seed=3)
    assert dataset.spec == "photos:test+shapes+letters:alpha=0.5"
    assert list(dataset.labels) == ["class", "shapes", "letters"]
    assert dataset.paths == plain.paths
    first = plant(plain.images, Shapes(), seed=3, held_out=True)
    second = plant(first.images, Letters(alpha=0.5), seed=3, held_out=True)
    assert (dataset.images == second.images).all()
    assert (dataset.labels["shapes"] == first.labels).all()
    assert (dataset.labels["letters"] == second.labels).all()
    assert dataset.classes["letters"] == second.classes


def test_an_overlay_belongs_to_the_final_index(tmp_path):
    path, _ = npz(tmp_path, t=np.repeat([0, 1], 100))
    whole = open_dataset(f"{path}+digits")
    for limit in (2, 50, 200):
        part = open_dataset(f"{path}+digits", max_examples=limit)
        assert (part.labels["digits"] == whole.labels["digits"][:limit]).all()
        plain = open_dataset(path, max_examples=limit)
        assert (part.images == plant(plain.images, Digits()).images).all()
    split = open_dataset(f"{path}:train+digits")
    assert (split.labels["digits"] == whole.labels["digits"][: len(split)]).all()


def test_held_out_is_for_test_splits_and_on_request(tmp_path):
    path, x = npz(tmp_path)
    train, held_out = plant(x, Digits()).labels, plant(x, Digits(), held_out=True).labels
    assert (open_dataset(f"{path}+digits").labels["digits"] == train).all()
    assert (open_dataset(f"{path}+digits", held_out=True).labels["digits"] == held_out).all()
    test = open_dataset(f"{path}:test+digits").labels["digits"]
    assert (test == held_out[: len(test)]).all()
    trained = open_dataset(f"{path}:train+digits").labels["digits"]
    assert (trained == train[: len(trained)]).all()


def test_hash_split_is_a_stable_partition(tmp_path):
    path, x = npz(tmp_path, n=1000)
    train, test = open_dataset(f"{path}:train"), open_dataset(f"{path}:test")
    assert sorted([*train.paths, *test.paths]) == sorted(open_dataset(path).paths)
    assert 0.16 < len(test) / 1000 < 0.24
    for dataset in (train, test):
        rows = [int(name.split()[1]) for name in dataset.paths]
        assert rows == sorted(rows)
        assert (dataset.images == x[rows]).all()
        assert any("80 / 20 by a hash" in note for note in dataset.notes)


def test_hash_split_of_a_folder_ignores_the_other_files(tmp_path):
    def write(names):
        for name in names:
            Image.new("RGB", (16, 16)).save(tmp_path / f"{name}.png")

    write(range(60))
    before = set(open_dataset(f"{tmp_path}:test").paths)
    write(range(60, 120))
    after = set(open_dataset(f"{tmp_path}:test").paths)
    assert before == {path for path in after if int(path[:-4]) < 60}


def test_classes_of_a_split_are_those_of_the_whole(tmp_path):
    for name in ("ant", "bee", "cow"):
        (tmp_path / name).mkdir()
    for i in range(40):
        Image.new("RGB", (16, 16)).save(tmp_path / "ant" / f"{i}.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "cow" / "1.png")
    Image.new("RGB", (16, 16)).save(tmp_path / "bee" / "1.png")
    train, test = (open_dataset(f"{tmp_path}:{split}") for split in ("train", "test"))
    assert train.classes == test.classes == {"class": ("ant", "bee", "cow")}


def test_an_empty_split_is_refused(tmp_path):
    path, _ = npz(tmp_path, n=1)
    assert len(open_dataset(f"{path}:train")) == 1
    with pytest.raises(ValueError, match="is empty: the 80 / 20 hash split of 1 left it none"):
        open_dataset(f"{path}:test")


def balanced_by_hand(labels, max_examples):
    """Take one of each class in turn, each time the first not yet taken."""
    queues = {c: [i for i, label in enumerate(labels) if label == c] for c in set(labels)}
    taken = []
    while len(taken) < max_examples:
        # Within a round, who comes first in the data is served first.
        turn = sorted(queue.pop(0) for queue in queues.values() if queue)
        taken += turn[: max_examples - len(taken)]
    return sorted(taken)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.data())
def test_limit_is_balanced(labels, data):
    max_examples = data.draw(st.integers(1, len(labels)))
    tasks = {"a": np.array(labels), "b": np.zeros(len(labels), int)}
    chosen = balanced_subset(tasks, np.arange(len(labels)), max_examples)
    assert chosen.tolist() == balanced_by_hand(labels, max_examples)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=40), st.data()
)
def test_limit_is_balanced_over_groups_too(pairs, data):
    """By loops: the examples of a class in the order of their turn in their group."""
    max_examples = data.draw(st.integers(1, len(pairs)))
    labels, groups = np.array(pairs).T
    turn = [pairs[:i].count(pair) for i, pair in enumerate(pairs)]
    order = sorted(range(len(pairs)), key=lambda i: (turn[i], i))
    place = {i: [pairs[j][0] for j in order[:k]].count(pairs[i][0]) for k, i in enumerate(order)}
    expected = sorted(order, key=lambda i: (place[i], order.index(i)))[:max_examples]
    chosen = balanced_subset({"a": labels}, np.arange(len(pairs)), max_examples, groups)
    assert chosen.tolist() == sorted(expected)


def test_limit_takes_examples_of_every_group(tmp_path, monkeypatch):
    """Of files, whose pixels are cached: those of other groups are others."""
    monkeypatch.setattr("widefield.data.cache.KEPT_FROM", 1)
    for i in range(24):
        Image.new("RGB", (8, 8), (10 * i, 0, 0)).save(tmp_path / f"{i:02}.png")
    for pattern, names in ((r"regex:(\d)\d", ["00", "01", "10", "20"]), (r"regex:\d(\d)", None)):
        found = open_dataset(tmp_path, group=pattern, max_examples=4)
        names = names or ["00", "01", "02", "03"]
        assert found.paths == [f"{name}.png" for name in names]
        assert found.images[:, 0, 0, 0].tolist() == [10 * int(name) for name in names]


def test_limit_without_a_task_takes_the_first(tmp_path):
    path, _ = npz(tmp_path)
    assert open_dataset(f"{path}+digits", max_examples=7).paths == [f"row {i}" for i in range(7)]


def test_limit_of_the_photos_is_balanced():
    labels = open_dataset("photos", max_examples=160).labels["class"]
    assert np.bincount(labels).tolist() == [10] * 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_examples": 201},
            "max_examples is 201 and there are 200 examples; choose a smaller max_examples",
        ),
        ({"max_examples": 0}, "max_examples is 0; expected at least 1"),
        ({"image_size": -3}, "image_size is -3; expected at least 1"),
    ],
)
def test_bad_options(tmp_path, options, message):
    path, _ = npz(tmp_path)
    with pytest.raises(ValueError, match=message):
        open_dataset(path, **options)


def test_task_of_the_data_with_the_name_of_a_plant(tmp_path):
    path, _ = npz(tmp_path, digits=np.zeros(200, int))
    with pytest.raises(ValueError, match=r"has a task 'digits' already; '\+digits' cannot"):
        open_dataset(f"{path}+digits")


def test_paths_that_are_no_data(tmp_path):
    (tmp_path / "cat.jpg").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cat\.jpg' is neither a folder, nor a \.npz"):
        open_dataset(tmp_path / "cat.jpg")
    with pytest.raises(ValueError, match=r"no path .*cat\.png'; did you mean .*cat\.jpg'"):
        open_dataset(tmp_path / "cat.png")


def test_what_is_no_data_is_told_what_is(tmp_path):
    whole = r"expected a name or path, an array or tensor such as \[n, H, W, C\], a list of paths"
    for data in (3, None, object()):
        name = type(data).__name__
        with pytest.raises(ValueError, match=f"cannot read data from {name}; {whole}.*stack"):
            open_dataset(data)
    with pytest.raises(ValueError, match=r"arrays stand in a list: .* or stack images into one"):
        open_dataset([np.zeros((8, 8, 3), np.uint8)])
    ours = open_dataset("photos", max_examples=16)
    with pytest.raises(ValueError, match=r"cannot read data from Dataset; .* give its arrays\(\)"):
        open_dataset(ours)
    assert (open_dataset(ours.arrays()).images == ours.images).all()


def test_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    npz(tmp_path)
    assert len(open_dataset("~/a.npz")) == 200
    assert len(open_dataset("~/a.npz:test+digits", max_examples=3)) == 3


def test_a_path_object_is_only_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no path 'photos'"):
        open_dataset(Path("photos"))


def test_planting_leaves_arrays_of_the_caller_alone(tmp_path):
    x = np.zeros((4, 16, 16, 3), np.uint8)
    dataset = open_dataset({"x": x})
    plant(dataset.images, Digits())
    assert not x.any()


def test_cifar_comes_from_torchvision_without_download(monkeypatch, tmp_path):
    asked = []

    def cifar(root, train, download):
        asked.append((root, train, download))
        data = np.full((20, 32, 32, 3), 9 if train else 5, np.uint8)
        return SimpleNamespace(data=data, targets=[i % 2 for i in range(20)], classes=["a", "b"])

    monkeypatch.setattr(torchvision.datasets, "CIFAR100", cifar)
    monkeypatch.setenv("WIDEFIELD_DATA", str(tmp_path))
    train, test = open_dataset("cifar100"), open_dataset("cifar100:test", max_examples=4)
    assert asked == [(tmp_path, True, False), (tmp_path, False, False)]
    assert train.spec == "cifar100:train"
    assert train.classes == {"class": ("a", "b")}
    assert (train.images == 9).all()
    assert (test.images == 5).all()
    assert test.labels["class"].tolist() == [0, 1, 0, 1]


def test_the_two_cifars_in_one_folder_are_cached_apart(monkeypatch, tmp_path):
    def cifar(value):
        data = np.full((20, 32, 32, 3), value, np.uint8)
        names = SimpleNamespace(data=data, targets=[0] * 20, classes=["a"])
        return lambda root, train, download: names

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", cifar(10))
    monkeypatch.setattr(torchvision.datasets, "CIFAR100", cifar(100))
    (tmp_path / "sets").mkdir()
    monkeypatch.setenv("WIDEFIELD_DATA", str(tmp_path / "sets"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in (("cifar10", 10), ("cifar100", 100), ("cifar10", 10)):
        assert (open_dataset(name, memory_budget=0).images == value).all()
    open_dataset("cifar10:test", memory_budget=0)
    assert len(list((tmp_path / "cache" / "widefield").iterdir())) == 3


def test_missing_cifar_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("WIDEFIELD_DATA", str(tmp_path / "sets"))
    with pytest.raises(ValueError, match=r"CIFAR10 is not in .*sets.*download=True") as info:
        open_dataset("cifar10+digits")
    assert "\n" not in str(info.value)
