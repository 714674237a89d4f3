"""Commands in processes forked from one that has imported everything heavy.

They save the seconds in which a new interpreter imports torch, where a test is not about that.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

PRELOADED = (
    "widefield.workflows.pretrain",
    "torch._dynamo",
    "timm",
    "torch.utils.tensorboard",
    "matplotlib.backends.backend_svg",
)
"""What a training process imports: with the call, and as it steps, logs and draws its page."""

START = "forkserver"
"""The way to start such a process."""

CONTEXT = multiprocessing.get_context(START)
CONTEXT.set_forkserver_preload(list(PRELOADED))


class ForkedCommand:
    """`widefield WORDS` in a process of its own, much like a `subprocess.Popen`.

    `first`, a function importable by name, is called in it before the command.
    """

    def __init__(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        first: Callable[[], None] | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="widefield-forked-"))
        self._files = [self._folder / name for name in ("stdout", "stderr")]
        self._printed = ("", "")
        self._process = CONTEXT.Process(
            target=_command,
            args=(list(map(str, words)), {**os.environ, **(env or {})}, self._files, first),
        )
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """Exit code, minus the number of the signal that ended it; None while it runs."""
        return self._process.exitcode

    @property
    def pid(self) -> int:
        """Number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, sign: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, sign)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return what was printed on stdout and stderr."""
        self._process.join(timeout)
        assert self.returncode is not None, "the command has not ended"
        if self._folder.exists():
            out, err = (file.read_text() if file.exists() else "" for file in self._files)
            self._printed = (out, err)
            shutil.rmtree(self._folder)
        return self._printed


def _command(
    words: list[str],
    env: dict[str, str],
    files: list[Path],
    first: Callable[[], None] | None,
) -> NoReturn:
    for number, file in enumerate(files, start=1):
        opened = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["widefield", *words]
    if first is not None:
        first()
    from widefield.cli import main

    main()
