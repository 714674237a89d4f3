"""Several processes, each of which compares the examples of its own part of a batch alone."""

from types import SimpleNamespace
from typing import Any

import pytest

from widefield.config.recipes import make_recipe
from widefield.core.types import Shard
from widefield.workflows.pretrain import _gather_note


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
    lines = _gather_note(recipe, ranks)
    assert len(lines) == said
    if said:
        assert f"{64 // world} examples of its own part of a batch, not all 64" in lines[0]
