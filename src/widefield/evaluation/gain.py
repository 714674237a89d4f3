"""Is an encoder better than the same one untrained? An answer that needs no labels.

Three questions to both encoders, image by image. How many of its nearest neighbors does an image
keep when it is seen through a gentle view: the more, the more its features say about it and the
less about the pixels that the view changes. How well does a linear probe name the quarter turn of
an image: the better, the more its features say about what is in it. And how often does a quarter
of an image find the opposite one among those of others: the more, the more its features say about
what both are parts of. Who is near whom goes by whitened features, as a linear probe sees them. A
rise of the mean of the three shares shows that something was learned; benchmarks/NOTEBOOK.md says how
often. Without one, it may have been all the same.
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
from widefield.encoders import untrained_starts
from widefield.evaluation.cross_fit import Features, through_views
from widefield.evaluation.neighbors import NEIGHBORS, RIDGE
from widefield.evaluation.paired import Change, change
from widefield.evaluation.quarters import quarters_found
from widefield.evaluation.reading import Reading, read_labels
from widefield.evaluation.turns import turns_named
from widefield.metrics import health, view_agreement, whitened
from widefield.probes import extract, pixels

EXAMPLES = 1000
"""Images that are compared, at most."""
LEAST = 100
"""Images without which nothing is compared."""
RISEN = 0.002
"""Less of a rise of the mean shows nothing: it comes with rates too low to learn anything."""

Verdict = Literal[
    "better than untrained", "not shown to be better than untrained", "collapsing", "collapsed"
]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """An encoder beside the same one untrained and beside raw pixels."""

    verdict: Verdict
    agreement: Change
    """Share of its neighbors that an image keeps through a view, from untrained to trained."""
    pixels: float
    """The same of raw pixels."""
    turns: Change
    """Share of an image's quarter turns that a linear probe names, from untrained to trained."""
    quarters: Change
    """Share of an image's quarters that find the opposite one, from untrained to trained."""
    mean: Change
    """The mean of the three shares."""
    examples: int
    labels: Mapping[str, Reading] = field(default_factory=dict)
    """Task of the data -> how often a linear probe reads it; empty without labels."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def words(self) -> str:
        """The verdict, after what labels say against it."""
        worse = [task for task, read in self.labels.items() if read.untrained.word == "lost"]
        if not worse:
            return self.verdict
        labels = ", ".join(worse)
        return f"worse than untrained by the labels of {labels}, without them {self.verdict}"

    def evidence(self) -> list[str]:
        """Return what the verdict rests on in plain lines, that of labels last."""
        kept, named, found = self.agreement, self.turns, self.quarters
        told = self.labels or self.verdict == "better than untrained"
        shown = (
            f"images keep {100 * kept.after:.0f} % of their neighbors through "
            f"views (untrained {100 * kept.before:.0f} %, raw pixels {100 * self.pixels:.0f} %); a "
            f"linear probe names {100 * named.after:.0f} % of their quarter turns (untrained "
            f"{100 * named.before:.0f} %); {100 * found.after:.0f} % of their quarters find the "
            f"opposite one (untrained {100 * found.before:.0f} %)"
            f"{'' if told else '; labels of a few images would tell'}"
        )
        return [shown, *(reading.line(task) for task, reading in self.labels.items())]

    def lines(self) -> list[str]:
        """Return the verdict and what it rests on in plain lines."""
        first, *others = self.evidence()
        return [f"{self.words}: {first}", *others]


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
    images, views = data.images, through_views(data.images, seed)
    before, *others = (_features(e, device) for e in untrained_starts(encoder, seed=seed))
    after = _features(encoder, device)
    before_h, after_h, raw = (features(images) for features in (before, after, pixels))

    def kept(h: Tensor, of_views: Tensor) -> NDArray[np.float64]:
        own, seen = whitened(h, of_views, ridge=RIDGE)
        return view_agreement(own, seen, NEIGHBORS).cpu().numpy()

    shares = [
        (
            kept(h, f(views)),
            turns_named(h, f, images, seed=seed),
            quarters_found(f, images, NEIGHBORS),
        )
        for h, f in ((before_h, before), (after_h, after))
    ]
    agreement, turns, quarters = (change(*pair, seed=seed) for pair in zip(*shares, strict=True))
    mean = change(*(np.mean(three, axis=0) for three in shares), seed=seed)
    starts = chain([before_h], (features(images) for features in others))
    return Gain(
        verdict=judged(mean, health(after_h).verdict),
        agreement=agreement,
        pixels=float(kept(raw, pixels(views)).mean()),
        turns=turns,
        quarters=quarters,
        mean=mean,
        examples=len(data),
        labels=read_labels(data, after_h, starts, raw, seed=seed) if labels_unseen else {},
    )


def _features(encoder: nn.Module, device: torch.device) -> Features:
    return partial(extract, encoder.to(device), device=device)


def judged(mean: Change, state: Literal["healthy", "collapsing", "collapsed"]) -> Verdict:
    """Judge the change of the mean share, and the health of the features.

    Features that collapsed may still be better than those of the start.

    Example:
        >>> judged(Change(before=0.4, after=0.5, low=0.08, high=0.12), "healthy")
        'better than untrained'
    """
    if mean.word == "gained" and mean.difference > RISEN:
        return "better than untrained"
    return state if state != "healthy" else "not shown to be better than untrained"
