"""Is an encoder better than the same one untrained? An answer that needs no labels.

The neighbours of an image are the same ones when it is seen through a gentle view, the more so the
more its features say about it and the less about the pixels that the view changes. How many of
them an image keeps is compared with the encoder untrained, image by image. A rise shows that
something was learned; docs/recipe.md says how often. Without one, it may have been all the same.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from widefield.data import Dataset
from widefield.diagnose import health, view_agreement
from widefield.encoders import untrained_like
from widefield.probes import extract, pixels
from widefield.workflows.change import Change, change
from widefield.workflows.evidence import Features, through_views
from widefield.workflows.neighbours import NEIGHBOURS

EXAMPLES = 1000
"""Images that are compared, at most."""
LEAST = 100
"""Images without which nothing is compared."""
RISEN = 0.03
"""Less of a rise shows nothing: it comes with rates too low to learn anything."""

Verdict = Literal[
    "better than untrained", "not shown to be better than untrained", "collapsing", "collapsed"
]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """An encoder beside the same one untrained and beside raw pixels."""

    verdict: Verdict
    agreement: Change
    """Share of its neighbours that an image keeps through a view, from untrained to trained."""
    pixels: float
    """The same of raw pixels."""
    examples: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def line(self) -> str:
        """Return it in one plain line."""
        kept = self.agreement
        labels = (
            "" if self.verdict == "better than untrained" else "; labels of a few images would tell"
        )
        return (
            f"{self.verdict}: images keep {100 * kept.after:.0f} % of their neighbours through "
            f"views, untrained {100 * kept.before:.0f} %, raw pixels {100 * self.pixels:.0f} %"
            f"{labels}"
        )


def compare_with_untrained(
    encoder: nn.Module, dataset: Dataset, *, seed: int, device: torch.device
) -> Gain | None:
    """Compare an encoder with itself untrained; None for fewer than 100 examples, and for signals.

    Args:
        encoder: x[B, C, H, W] in [0, 1] -> h[B, D].
        dataset: images, such as those that it was trained on; up to 1,000 of them are asked about.
        seed: seeds the views, the untrained weights and the interval.
        device: where the encoders run.
    """
    if len(dataset) < LEAST or dataset.kind != "images":
        return None
    images = dataset.images[dataset.spread_rows(EXAMPLES)]
    views = through_views(images, seed)

    def kept(features: Features) -> Any:
        h = features(images)
        return view_agreement(h, features(views), NEIGHBOURS).cpu().numpy(), h

    untrained = untrained_like(encoder, seed=seed).to(device)
    before, _ = kept(partial(extract, untrained, device=device))
    after, h = kept(partial(extract, encoder.to(device), device=device))
    agreement = change(before, after, seed=seed)
    return Gain(
        verdict=judged(agreement, health(h).verdict),
        agreement=agreement,
        pixels=float(kept(pixels)[0].mean()),
        examples=len(images),
    )


def judged(agreement: Change, state: Literal["healthy", "collapsing", "collapsed"]) -> Verdict:
    """Judge a change of the neighbours kept, and the health of the features.

    Example:
        >>> judged(Change(before=0.4, after=0.5, low=0.08, high=0.12), "healthy")
        'better than untrained'
    """
    if state != "healthy":
        return state
    risen = agreement.word == "gained" and agreement.difference > RISEN
    return "better than untrained" if risen else "not shown to be better than untrained"
