"""Names of options and arguments in messages and notes: as the caller writes them."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from commands import Command
from widefield.core.input_errors import caller_names, input_errors, option_names


@dataclass(frozen=True)
class Result:
    notes: tuple[str, ...]


@input_errors
def call(*, fails: bool = False, on_note: Callable[[str], None] | None = None) -> Result:
    note = "choose --image-size 64, or a smaller max_examples"
    if fails:
        raise ValueError(note)
    if on_note is not None:
        on_note(note)
    return Result(notes=(note, "as it was"))


IN_PYTHON = "choose image_size=64, or a smaller max_examples"
IN_COMMAND = "choose --image-size 64, or a smaller --max-examples"


def test_python_names_arguments_and_commands_options() -> None:
    said: list[str] = []
    assert call(on_note=said.append).notes == (IN_PYTHON, "as it was")
    with pytest.raises(ValueError, match=f"^{IN_PYTHON}$"):
        call(fails=True)
    with option_names(["image_size", "max_examples"]):
        assert call(on_note=said.append).notes == (IN_COMMAND, "as it was")
        with pytest.raises(ValueError, match=f"^{IN_COMMAND}$"):
            call(fails=True)
    assert said == [IN_PYTHON, IN_COMMAND]


@pytest.mark.parametrize(
    "text", ["no path named 'max_examples'", "max_examples/a.png", "lower head_lr_scale", "labels"]
)
def test_paths_and_names_that_are_no_options_stay(text: str) -> None:
    with option_names(["max_examples", "labels"]):
        assert caller_names(text) == text
    assert caller_names(text) == text


def test_a_command_names_its_options(command: Command) -> None:
    words = ["probe", "pixels", "photos:test", "--train-data", "photos", "--max-examples", "0"]
    assert "--max-examples is 0" in command.refused(*words)
