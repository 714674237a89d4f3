"""Several policies as one: each changes what the one before it made."""

from collections.abc import Sequence
from itertools import combinations

from torch import Generator, Tensor, nn

from widefield.views.base import BARE, Scene, Views


class Chain(Views):
    """Policies, each with its name, from left to right.

    Raises:
        ValueError: a policy cannot stand where it stands; the message says why and what to do.

    Example:
        >>> from widefield.views import build_views
        >>> [type(part).__name__ for part in build_views("crop+noise").parts]
        ['ImageViews', 'Noise']
    """

    def __init__(self, parts: Sequence[tuple[str, Views]]) -> None:
        super().__init__()
        for (name, part), (later_name, later) in combinations(parts, 2):
            reason = _misplaced(part, later)
            if reason is not None:
                raise ValueError(f"views {name!r} cannot come before {later_name!r}: {reason}")
        policies = [part for _, part in parts]
        self.parts = nn.ModuleList(policies)
        self.needs_mask = any(part.needs_mask for part in policies)
        self.gradient_calls = sum(part.gradient_calls for part in policies)
        self.keeps_pixels_in_place = all(part.keeps_pixels_in_place for part in policies)
        self.come_in_pairs = any(part.come_in_pairs for part in policies)
        self.passes_gradient = all(part.passes_gradient for part in policies)
        self.value_range = policies[-1].value_range

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Change `views` [B, C, H, W] by each policy in turn."""
        for part in self.parts:
            assert isinstance(part, Views)
            views = part.alter(views, generator, scene)
        return views


def _misplaced(part: Views, later: Views) -> str | None:
    """Why `later` cannot follow `part`, if so."""
    if later.needs_mask and not part.keeps_pixels_in_place:
        return "it moves pixels, and the planted object would no longer be where its mask is"
    if part.gradient_calls:
        return "the attack raises the loss of the views it returns: put it last"
    if part.value_range != (0.0, 1.0):
        return "its views leave [0, 1]: put it last"
    if not later.passes_gradient and any(p.requires_grad for p in part.parameters()):
        return "no gradient would come back to the views that learn: put them last"
    return None
