import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from widefield.data import absolute, open_dataset, same_images, to_test_split
from widefield.data.spec import BUILTIN, Plant, Spec, parse

names = st.text(string.ascii_letters + string.digits + " _.+:-", min_size=1, max_size=12)
plants = st.lists(
    st.builds(
        Plant,
        st.sampled_from(["digits", "shapes", "letters"]),
        st.sampled_from([(), (("alpha", "0.5"),), (("alpha", "1"),)]),
    ),
    unique_by=lambda plant: plant.name,
    max_size=3,
).map(tuple)
splits = st.sampled_from([None, "train", "test"])


@given(base=st.sampled_from(BUILTIN), split=st.sampled_from(["train", "test"]), plants=plants)
def test_built_in_round_trip(base, split, plants):
    spec = Spec(base, split, plants)
    assert parse(str(spec)) == spec


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(name=names, split=splits, plants=plants)
def test_path_round_trip_whatever_its_name(tmp_path_factory, name, split, plants):
    path = tmp_path_factory.mktemp("spec") / f"a{name}z"
    path.mkdir()
    spec = Spec(str(path), split, plants)
    assert parse(str(spec)) == spec


@settings(max_examples=300)
@given(st.text(string.ascii_letters + ":+=./\\ ", max_size=24) | names.map("photos+".__add__))
def test_any_text_is_parsed_or_refused_in_one_line(text):
    error = ""
    try:
        spec = parse(text)
        assert parse(str(spec)) == spec
    except ValueError as refused:
        error = str(refused)
    assert "\n" not in error


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("photos", "photos:train"),
        ("photos:test", "photos:test"),
        ("cifar100+shapes", "cifar100:train+shapes"),
        ("photos+digits:source=C:\\packs\\a+b.npz:alpha=.5", None),
        ("photos+letters+digits:alpha=0.5", "photos:train+letters+digits:alpha=0.5"),
    ],
)
def test_canonical(text, canonical):
    if canonical is None:
        (plant,) = parse(text).plants
        assert plant.options == (("alpha", ".5"), ("source", "C:\\packs\\a+b.npz"))
    else:
        assert str(parse(text)) == canonical


def test_the_whole_text_is_a_path_if_it_exists(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("C:\\data", "x+digits", "x+digits:test", "x", "photos"):
        (tmp_path / name).mkdir()
    assert parse("C:\\data") == Spec("C:\\data")
    assert parse("C:\\data:test") == Spec("C:\\data", "test")
    assert parse("x+digits") == Spec("x+digits")
    assert parse("x+digits:test") == Spec("x+digits:test")
    assert parse("x+digits:train") == Spec("x+digits", "train")
    assert parse("x+digits+digits") == Spec("x+digits", None, (Plant("digits"),))
    assert parse("x+shapes") == Spec("x", None, (Plant("shapes"),))
    assert parse("photos:train") == Spec("photos", "train")
    assert parse("./photos") == Spec("./photos")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("phots", "no data set or path named 'phots'; did you mean 'photos'"),
        ("cifar11+digits", "named 'cifar11'; did you mean 'cifar10'"),
        ("./imgs", "no data set or path named './imgs'; did you mean 'images'"),
        ("zzzz", "named 'zzzz'; built in: photos, spoken, motion, cifar10, cifar100"),
        ("", "no data set or path named ''"),
        ("photos:val", "'photos' has no split 'val'; known: train, test"),
        ("images:val+digits", "'images' has no split 'val'; known: train, test"),
        ("photos+digit", "no planted feature named 'digit'; did you mean 'digits'"),
        (
            "photos+digits:bold",
            "has no option 'bold'; known: alpha, color, fresh, jitter, size, source",
        ),
        ("photos+shapes:source=x", r"'\+shapes' has no option 'source'; known: alpha"),
        ("photos+watermark", "no planted feature named 'watermark'; known: digits, "),
        ("photos+digits:alpha=2", r"alpha of '\+digits' must be .* in \(0, 1\], got 2.0"),
        ("photos+digits:alpha=0", r"must be a finite number in \(0, 1\], got 0.0"),
        ("photos+digits:alpha=nan", r"must be a finite number in \(0, 1\], got nan"),
        *(
            (f"photos+digits:jitter={x}", r"must be a whole number in \[0, 4\] pixels, got")
            for x in ("5", "-1", "1.5", "x")
        ),
        *(
            (f"photos+shapes:{option}={x}", rf"{option} of '\+shapes' must be .*, got '?{x}")
            for option, x in (("size", "2"), ("size", "big"), ("color", "blue"), ("place", "left"))
        ),
        ("photos+shapes:fresh=yes", r"'\+shapes:fresh' takes no value, got 'yes'"),
        ("photos+shapes:as-published=yes", r"'\+shapes:as-published' takes no value, got 'yes'"),
        ("photos+shapes:as-published:size=1.2", "has a fixed size and place: leave out"),
        ("photos+shapes:as_published", "known: alpha, as-published, color, fresh, place, size"),
        ("photos+digits:alpha=", r"must be a finite number in \(0, 1\], got ''"),
        ("photos+digits:alpha", r"must be a finite number in \(0, 1\], got ''"),
        ("photos+digits+digits", r"'\+digits' is planted twice"),
        ("photos+", "no planted feature named ''"),
        ("photos++digits", "no planted feature named ''"),
        ("images+digits", None),
    ],
)
def test_errors_name_what_was_wrong(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    if message is None:
        message = "no images under 'images'"
    with pytest.raises(ValueError, match=message):
        open_dataset(text)


def test_absolute_paths_mean_the_same_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path)
    assert absolute("mine:train+digits") == f"{tmp_path}/mine:train+digits"
    assert absolute("photos") == "photos:train"


def test_a_path_named_like_a_built_in_source_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for i in range(9):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.new("RGB", (16, 16), (20 * i, 0, 0)).save(tmp_path / "photos" / f"{i}.png")
    for data in (Path("photos"), Path("./photos"), "./photos"):
        dataset = open_dataset(data)
        assert len(dataset) == 9
        assert absolute(dataset.spec) == str(tmp_path / "photos")
    assert len(open_dataset("photos:train", max_examples=12)) == 12  # the control


def test_arrays_in_memory_are_not_the_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memory").mkdir()
    assert not same_images("memory", "memory")
    assert not same_images("memory+digits", "memory")
    assert same_images("./memory:train", "./memory:test")
    (tmp_path / "memory").rmdir()
    assert not same_images("./memory", "./memory")


def test_the_source_of_a_plant_means_the_same_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for text, said in (("d.npz", tmp_path / "d.npz"), ("~/d.npz", tmp_path / "home" / "d.npz")):
        assert absolute(f"photos+digits:source={text}+shapes") == (
            f"photos:train+digits:source={said}+shapes"
        )


def test_the_held_out_split_of_a_training_split(tmp_path: Path) -> None:
    assert to_test_split(f"{tmp_path}:train+shapes") == f"{tmp_path}:test+shapes"
    with pytest.raises(ValueError, match="has no test split, so there is nothing to score on"):
        to_test_split(str(tmp_path))
    with pytest.raises(ValueError, match="has no test split, so there is nothing to score on"):
        to_test_split("photos:test")


def test_a_mistyped_name_is_answered_without_the_heavy_imports():
    code = """
import sys
from widefield.data import absolute
from widefield.data.spec import parse
for text in ("fotos", "photos+digit", "photos+digits:alpha=2"):
    try:
        parse(text)
    except ValueError:
        pass
    else:
        raise AssertionError(text)
heavy = {"torch", "torchvision", "timm", "lightning", "sklearn", "skimage", "scipy"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_folder_of_a_split_is_not_the_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images" / "val").mkdir(parents=True)
    with pytest.raises(ValueError, match="train, test; did you mean the folder 'images/val'\\?"):
        parse("images:val")
