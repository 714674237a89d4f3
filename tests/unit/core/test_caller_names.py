"""Names of settings in messages: as the caller writes them; what a user wrote stays as it is."""

from pathlib import Path

import pytest

import widefield
from commands import Command
from widefield.core.errors import command_line, option

WITH_PATH = (
    "audit random PATH --out o.html",
    "classify random PATH --labels labels.csv --out o.csv",
    "demo --audio --data PATH --out o",
    "embed random PATH --out o.npz",
    "explore random PATH --out o.html",
    "export PATH --out o.onnx",
    "plan PATH",
    "pretrain PATH --out o",
    "probe random PATH",
    "recover PATH --feature digits --out o",
    "search random PATH --image PATH --out o.html",
    "views PATH --out o.html",
)
PATHS = ("t/holiday --final", "image_size_64.npz", "a --lr 3/max_examples.png")


@pytest.mark.parametrize(
    ("value", "in_python", "in_command"),
    [
        (None, "image_size", "--image-size"),
        (64, "image_size=64", "--image-size 64"),
        (1, "image_size=1", "--image-size 1"),
        (True, "image_size=True", "--image-size"),
        ("SIDE", "image_size=SIDE", "--image-size SIDE"),
        ("96x128", "image_size='96x128'", "--image-size 96x128"),
        (Path("my run"), "image_size='my run'", "--image-size 'my run'"),
    ],
)
def test_python_names_arguments_and_commands_options(
    value: float | str | Path | None, in_python: str, in_command: str
) -> None:
    assert option("image_size", value) == in_python
    with command_line():
        assert option("image_size", value) == in_command
    with command_line(python_only=["image_size"]):
        assert option("image_size", value) == in_python
    assert option("image_size", value) == in_python


@pytest.mark.parametrize("path", PATHS)
def test_a_path_in_a_message_of_python_is_as_it_was_given(path: str, in_tmp: Path) -> None:
    with pytest.raises(ValueError, match="no data") as raised:
        widefield.embed("random", path)
    assert f"'{path}'" in str(raised.value)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("words", WITH_PATH)
def test_a_path_in_a_message_of_a_command_is_as_it_was_given(
    words: str, path: str, command: Command, in_tmp: Path
) -> None:
    Path("labels.csv").write_text("path,class\n")
    assert path in command.refused(*(path if word == "PATH" else word for word in words.split()))


def test_a_command_names_its_options(command: Command) -> None:
    words = ["probe", "pixels", "photos:test", "--train-data", "photos", "--max-examples", "0"]
    assert "--max-examples is 0" in command.refused(*words)
