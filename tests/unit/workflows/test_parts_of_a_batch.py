"""Several processes, each of which compares the examples of its own part of a batch alone."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from widefield.config.recipes import make_recipe
from widefield.core.types import Shard
from widefield.train.resume import contrast_notes
from widefield.workflows.start import gather_note


@pytest.mark.parametrize(
    ("method", "gather_distributed", "world", "said"),
    [
        ("simclr", False, 2, True),
        ("simclr", True, 2, False),
        ("simclr", False, 1, False),
        ("s-diet", False, 4, True),
        ("supervised", None, 2, False),  # which compares no examples
    ],
)
def test_a_loss_over_a_part_of_the_batch_is_said(
    method: str, gather_distributed: bool | None, world: int, said: bool
) -> None:
    """Without the line a loss over the batch would silently be one over a part of it."""
    settings: dict[str, Any] = (
        {} if gather_distributed is None else {"gather_distributed": gather_distributed}
    )
    recipe = make_recipe(method=method, batch_size=64, **settings)
    ranks: Any = SimpleNamespace(shard=Shard(0, world))
    lines = gather_note(recipe, ranks)
    assert len(lines) == said
    if said:
        assert f"{64 // world} examples of its own part of a batch, not all 64" in lines[0]


@pytest.mark.parametrize(
    ("method", "gathers", "before", "now", "said"),
    [
        ("simclr", {}, 4, 1, "4 processes so far, now 1: the loss contrasts 64 .* contrasted 16;"),
        ("s-diet", {}, 4, 2, "4 processes so far, now 2: the loss contrasts 32 .* contrasted 16;"),
        ("dcl", {}, 1, 2, "1 process so far, now 2: the loss contrasts 32 .* and contrasted 64;"),
        ("simclr", {"gather_distributed": True}, 4, 1, None),
        ("byol", {}, 4, 1, None),  # which contrasts no examples
    ],
)
def test_another_number_of_processes_in_a_resumed_run_is_reported(
    method: str, gathers: dict[str, Any], before: int, now: int, said: str | None
) -> None:
    recipe = make_recipe(method=method, batch_size=64, **gathers)
    lines = contrast_notes(recipe, before, now)
    assert len(lines) == (said is not None)
    assert all(re.match(str(said), line) for line in lines)
