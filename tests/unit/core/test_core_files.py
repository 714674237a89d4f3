"""Files that are written whole or not at all."""

import errno
from pathlib import Path

import pytest
from safetensors import SafetensorError

from widefield.core.files import DiskFullError, write_atomically
from widefield.core.plain_yaml import read_yaml


def test_the_file_appears_whole_with_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "note.txt"
    write_atomically(path, lambda draft: draft.write_text("one"))
    assert path.read_text() == "one"
    write_atomically(path, lambda draft: draft.write_text("two"))
    assert path.read_text() == "two"
    assert [p.name for p in path.parent.iterdir()] == ["note.txt"]


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "broken"), ValueError("x"), KeyboardInterrupt]
)
def test_a_failure_leaves_the_old_file_alone(
    tmp_path: Path, error: BaseException | type[BaseException]
) -> None:
    path = tmp_path / "note.txt"
    path.write_text("old")

    def fail(draft: Path) -> None:
        draft.write_text("half a")
        raise error

    with pytest.raises((OSError, ValueError, KeyboardInterrupt)) as refused:
        write_atomically(path, fail)
    assert refused.value is error or refused.type is error
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["note.txt"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        OSError(errno.EFBIG, "File too large"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
        SafetensorError("Error while serializing: I/O error: No space left on device"),
    ],
)
def test_a_full_disk_is_said_in_one_line(tmp_path: Path, error: Exception) -> None:
    def fail(draft: Path) -> None:
        draft.write_text("half a")
        raise error

    with pytest.raises(DiskFullError, match=r"no space left on the disk for note\.txt: make room"):
        write_atomically(tmp_path / "note.txt", fail)
    assert list(tmp_path.iterdir()) == []


def test_text_that_begins_as_a_float_is_text(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("data: 2e1_photos\nlr: 1e-3\n", "utf-8")
    assert read_yaml(path) == {"data": "2e1_photos", "lr": 1e-3}
