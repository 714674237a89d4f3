"""Folders as users have them: splits, other files, links, pipes, and names of all kinds."""

import os
import time

import numpy as np
import pytest
from PIL import Image

from made_images import saved
from widefield.data import open_dataset


def picture(path, value=100, size=(8, 8)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value, value, value)).save(path)


def pictures(folder, count, suffix=".png"):
    for i in range(count):
        picture(folder / f"{i:03d}{suffix}", 10 + i)
    return folder


def test_files_of_other_kinds_are_counted(tmp_path):
    pictures(tmp_path, 3)
    for name in ("a.heic", "b.HEIC", "c.nef", "README", "d.csv", "e.txt", "f.xml", ".hidden.nef"):
        (tmp_path / name).write_text("other")
    (note,) = open_dataset(tmp_path).notes
    assert note == (
        "not read, because they are not images of a known type: "
        "2 .heic, 1 .csv, 1 .nef, 1 .txt, 2 others"
    )
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "a.nef").write_text("raw")
    with pytest.raises(ValueError, match=r"no images under .* \(not read.*: 1 \.nef\)"):
        open_dataset(tmp_path / "only")


def test_what_is_no_regular_file_is_not_opened(tmp_path):
    pictures(tmp_path, 3)
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 3
    assert any("2 pipes, sockets or devices" in note for note in dataset.notes)


def test_a_link_to_itself_is_a_file_that_cannot_be_read(tmp_path):
    pictures(tmp_path, 40)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "gone.png").symlink_to("nowhere.png")
    dataset = open_dataset(tmp_path)
    assert len(dataset) == 40
    assert [(s.path, s.reason) for s in dataset.skipped] == [
        ("gone.png", "No such file or directory"),
        ("loop.png", "Too many levels of symbolic links"),
    ]


def test_a_folder_that_is_linked_twice_is_read_once_under_its_own_name(tmp_path):
    pictures(tmp_path / "b", 2)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "c").symlink_to("b")
    (tmp_path / "b" / "up").symlink_to(tmp_path)
    outside = tmp_path / ".elsewhere"
    pictures(outside, 1)
    for name in ("z", "d"):
        (tmp_path / name).symlink_to(outside)
    dataset = open_dataset(tmp_path)
    assert dataset.paths == ["b/000.png", "b/001.png", "d/000.png"]
    assert any("4 links to folders that were read already" in note for note in dataset.notes)


def test_names_that_a_terminal_would_obey(tmp_path):
    pictures(tmp_path / "cats\x1b]0;title\x07", 2)
    (tmp_path / "dogs").mkdir()
    picture(tmp_path / "dogs" / "a\nb\x1b[31m.png")
    (tmp_path / "dogs" / "bad\x1b[2J.png").write_text("broken")
    pictures(tmp_path / "dogs", 40)
    dataset = open_dataset(tmp_path)
    told = [*dataset.paths, *dataset.classes["class"], *dataset.notes]
    told += [word for skipped in dataset.skipped for word in (skipped.path, skipped.reason)]
    assert all(text.isprintable() for text in told)
    assert dataset.classes["class"] == ("cats\\x1b]0;title\\x07", "dogs")
    assert "dogs/a\\nb\\x1b[31m.png" in dataset.paths


def test_folders_that_are_no_text_are_classes(tmp_path):
    pictures(tmp_path / "plain", 2)
    os.rename(pictures(tmp_path / "x", 2), os.fsencode(tmp_path) + b"/\xff\xfe")
    dataset = open_dataset(tmp_path)
    assert dataset.classes["class"] == ("plain", "\\xff\\xfe")
    assert dataset.labels["class"].tolist() == [0, 0, 1, 1]
    os.mkdir(os.fsencode(tmp_path) + b"/\\xff\\xfe")
    picture(tmp_path / "\\xff\\xfe" / "a.png")
    with pytest.raises(ValueError, match="two folders are shown as"):
        open_dataset(tmp_path)


def test_a_limit_of_all_files_of_which_one_is_bad(tmp_path):
    pictures(tmp_path, 40)
    (tmp_path / "bad.png").write_text("broken")
    dataset = open_dataset(tmp_path, max_examples=41)
    assert len(dataset) == 40
    assert len(dataset.skipped) == 1
    with pytest.raises(ValueError, match="max_examples is 42 and there are 41 examples"):
        open_dataset(tmp_path, max_examples=42)


def test_no_program_is_run_for_a_file(tmp_path, monkeypatch):
    """PostScript under another name would start Ghostscript."""
    started = []
    monkeypatch.setattr("subprocess.Popen.__init__", lambda *a, **k: started.append(a))
    pictures(tmp_path, 30)
    (tmp_path / "script.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    )
    (skipped,) = open_dataset(tmp_path).skipped
    assert (skipped.path, skipped.reason) == ("script.png", "not an image")
    assert started == []


def test_a_jpeg_of_thousands_of_scans_is_refused_at_once(tmp_path):
    pictures(tmp_path, 30, ".jpg")
    noise = np.random.default_rng(0).integers(0, 256, (800, 800), dtype=np.uint8)
    content = saved(noise, "JPEG", progressive=True, quality=30)
    last = content.rindex(b"\xff\xda")
    (tmp_path / "good.jpg").write_bytes(content)
    (tmp_path / "scans.jpg").write_bytes(content[:last] + content[last:-2] * 3_000 + b"\xff\xd9")
    began = time.monotonic()
    (skipped,) = open_dataset(tmp_path).skipped
    assert time.monotonic() - began < 5
    assert skipped.path == "scans.jpg"
    assert "progressive scans of 640000 pixels" in skipped.reason


def test_what_was_chosen_is_said_in_one_line(tmp_path):
    frames = [Image.new("L", (8, 8), value) for value in (200, 10)]
    frames[0].save(tmp_path / "pages.tif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "frames.gif", save_all=True, append_images=frames[1:])
    Image.new("RGBA", (8, 8), (9, 9, 9, 40)).save(tmp_path / "clear.png")
    Image.new("RGBA", (8, 8), (9, 9, 9, 255)).save(tmp_path / "opaque.png")
    Image.new("CMYK", (8, 8)).save(tmp_path / "ink.jpg")
    exif = Image.Exif()
    exif[0x0112] = 3
    for suffix in (".jpg", ".tif", ".png"):
        Image.new("RGB", (8, 8), "white").save(tmp_path / f"turned{suffix}", exif=exif)
    (note,) = open_dataset(tmp_path).notes
    assert note == (
        "of 8 images, 2 show the first of several pages or frames; "
        "1 are shown on white where they are transparent; "
        "3 are turned as their EXIF orientation says; "
        "1 come from CMYK, without a color profile"
    )
