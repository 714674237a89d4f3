"""Is an encoder better than the same one untrained? An answer that needs no labels.

The neighbours of an image are the same ones when it is seen through a gentle view, the more so the
more its features say about it and the less about the pixels that the view changes. How many of
them an image keeps is compared with the encoder untrained, image by image. A rise shows that
something was learned; docs/recipe.md says how often. Without one, it may have been all the same.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from widefield.data import Dataset
from widefield.diagnose import health, view_agreement
from widefield.encoders import untrained_starts
from widefield.probes import extract, pixels
from widefield.workflows.change import Change, change
from widefield.workflows.evidence import through_views
from widefield.workflows.neighbours import NEIGHBOURS
from widefield.workflows.reading import Reading, read_labels

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
    labels: Mapping[str, Reading] = field(default_factory=dict)
    """Task of the data -> how often a linear probe reads it; empty without labels."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def line(self) -> str:
        """Return what shows without labels in one plain line."""
        kept = self.agreement
        told = self.labels or self.verdict == "better than untrained"
        return (
            f"{self.verdict}: images keep {100 * kept.after:.0f} % of their neighbours through "
            f"views, untrained {100 * kept.before:.0f} %, raw pixels {100 * self.pixels:.0f} %"
            f"{'' if told else '; labels of a few images would tell'}"
        )

    def lines(self) -> list[str]:
        """Return what shows in plain lines, that of labels last."""
        return [self.line(), *(reading.line(task) for task, reading in self.labels.items())]


def compare_with_untrained(
    encoder: nn.Module,
    dataset: Dataset,
    *,
    seed: int,
    device: torch.device,
    labels_unseen: bool = True,
) -> Gain | None:
    """Compare an encoder with itself untrained; None for fewer than 100 examples, and for signals.

    Args:
        encoder: x[B, C, H, W] in [0, 1] -> h[B, D].
        dataset: images, such as those that it was trained on; up to 1,000 of them are asked about.
        seed: seeds the views, the untrained weights and the interval.
        device: where the encoders run.
        labels_unseen: whether the encoder was trained without the labels, so that they can judge.
    """
    if len(dataset) < LEAST or dataset.kind != "images":
        return None
    data = dataset.subset(dataset.spread_rows(EXAMPLES)).first_read()
    views = through_views(data.images, seed)
    own, *others = (e.to(device) for e in untrained_starts(encoder, seed=seed))
    features = partial(extract, device=device)
    trained, before, raw = (
        f(data.images)
        for f in (partial(features, encoder.to(device)), partial(features, own), pixels)
    )

    def kept(h: Tensor, of_views: Tensor) -> NDArray[np.float64]:
        return view_agreement(h, of_views, NEIGHBOURS).cpu().numpy()

    agreement = change(
        kept(before, features(own, views)), kept(trained, features(encoder, views)), seed=seed
    )
    starts = chain([before], (features(e, data.images) for e in others))
    return Gain(
        verdict=judged(agreement, health(trained).verdict),
        agreement=agreement,
        pixels=float(kept(raw, pixels(views)).mean()),
        examples=len(data),
        labels=read_labels(data, trained, starts, raw, seed=seed) if labels_unseen else {},
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
