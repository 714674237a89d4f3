"""A command as a user types it, called in this process."""

import json
from typing import Any

import pytest

from widefield.cli import main


class Command:
    """Calls `widefield WORDS`, and keeps its exit code and what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        """Return exit code, stdout and stderr."""
        self.monkeypatch.setattr("sys.argv", ["widefield", *map(str, words)])
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, *self.capsys.readouterr()

    def text(self, *words: object) -> str:
        """Return what a command says that succeeds."""
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def everything(self, *words: object) -> str:
        """Return what a command that succeeds prints, its notes on stderr included."""
        code, out, err = self(*words)
        assert code == 0, err
        return err + out

    def json(self, *words: object) -> Any:
        """Return the JSON object of a command that succeeds."""
        return json.loads(self.text(*words, "--json"))

    def refused(self, *words: object) -> str:
        """Return the one line of a command that is refused: exit code 2, nothing on stdout.

        Notes on the data may stand before it.
        """
        code, out, err = self(*words)
        assert (code, out) == (2, ""), err
        assert "Traceback" not in err
        *_, last = err.splitlines()
        assert [line for line in err.splitlines() if line.startswith("widefield: ")] == [last]
        return last
