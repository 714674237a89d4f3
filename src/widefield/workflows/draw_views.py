"""Views of some examples under one or several policies, drawn before any training."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.config.defaults import DEFAULT_METHOD, views_for
from widefield.core.errors import input_errors
from widefield.core.files import checked_output, write_atomically
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote, parse_size
from widefield.data import Dataset, open_dataset
from widefield.data.source import Data
from widefield.inference.features import images_progress, send_notes
from widefield.inference.pictures import render_views
from widefield.probes.features import image_batch
from widefield.report import AuditReport, Gallery, contact_sheet, png, write_page
from widefield.version import __version__
from widefield.views import VIEWS, ViewSettings, trained_parameters

_MEASURED = 256
"""Largest number of examples that changes are measured on."""
_BLACK, _WHITE = 1.5 / 255, 253.5 / 255
"""Largest value that is black, and smallest one that is white."""
_TURNED = 0.1
"""Share of a view's pixels that become white, or black, from which the view counts."""
_MANY = 0.05
"""Share of such views from which a note names the policy."""
_COLORED, _LOST = 0.02, 0.5
"""Mean chroma of images in color, and share of it below which color is called lost."""
_SIDE = 96
"""Side of the pictures on a page, pixels."""


@dataclass(frozen=True, kw_only=True)
class PolicyEffect:
    """What a view policy changes, measured on examples."""

    name: str
    summary: str
    white: tuple[float, float] | None
    """Share of white pixels, of the images and of the views; None for sounds and windows."""
    black: tuple[float, float] | None
    """Share of black pixels, likewise."""
    turned_white: float | None
    """Share of views that have at least a tenth more white pixels than their image."""
    turned_black: float | None
    """Share of views that have at least a tenth more black pixels."""
    color: float | None
    """Mean chroma of the views over that of the images; None for images in gray."""
    gray: float | None
    """Share of views that lose most of their color."""

    def line(self) -> str:
        """Return what the policy does, and the changes measured, in one sentence."""
        return "; ".join([f"{self.name}: {self.summary.removesuffix('.')}", *self.changes()])

    def changes(self) -> list[str]:
        """Return the changes measured, in words."""
        parts = []
        for word, share in (("white", self.white), ("black", self.black)):
            if share is not None:
                before, after = (f"{100 * value:.1f} %" for value in share)
                parts.append(f"{word} pixels {before} of images, {after} of views")
        if self.color is not None and self.gray is not None:
            kept, lost = f"{100 * self.color:.0f} %", f"{100 * self.gray:.0f} %"
            parts.append(f"{kept} of the color kept, lost in {lost} of views")
        return parts

    def notes(self) -> tuple[str, ...]:
        """Return notes on views in which many pixels become white or black.

        Example:
            >>> effect = PolicyEffect(
            ...     name="expert", summary="Crop.", white=(0.1, 0.3), black=(0, 0),
            ...     turned_white=0.4, turned_black=0, color=None, gray=None,
            ... )
            >>> effect.notes()[0][:72]
            'expert turns a tenth of the pixels or more white in 40 % of its views: w'
        """
        found = []
        for word, share in (("white", self.turned_white), ("black", self.turned_black)):
            if share is not None and share >= _MANY:
                found.append(
                    f"{self.name} turns a tenth of the pixels or more {word} in "
                    f"{100 * share:.0f} % of its views: where brightness or color separates "
                    "classes, choose views that change them less, such as microscopy"
                )
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class DrawnViews:
    """Examples, and their views under each policy."""

    data: str
    paths: list[str]
    """Names of the examples drawn."""
    policies: tuple[PolicyEffect, ...]
    pictures: dict[str, list[list[NDArray[np.uint8]]]]
    """Policy -> for each example the image, then its views, uint8 [h, w, C]."""
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield views --json` prints them."""
        return {
            "data": self.data,
            "paths": self.paths,
            "policies": [asdict(policy) for policy in self.policies],
            "notes": list(self.notes),
        }

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the pictures to a `.png` file, or a page of them to an `.html` file."""
        path = checked_output(path, (".html", ".png"), overwrite=overwrite)
        if path.suffix == ".html":
            write_page(self._page(), path, overwrite=overwrite)
            return
        sheet = contact_sheet(
            [
                (f"{policy.name}: {'; '.join(policy.changes())}", self.pictures[policy.name])
                for policy in self.policies
            ]
        )
        write_atomically(path, lambda temp_path: temp_path.write_bytes(sheet))

    def _page(self) -> str:
        names = ", ".join(self.pictures)
        return AuditReport(
            title=f"widefield views of {self.data}",
            summary=f"What training would see of {len(self.paths)} examples with {names}.",
            notes=[f"Note: {note}." for note in self.notes],
            figures=[
                Gallery(
                    title=policy.name,
                    caption=f"{policy.line().partition(': ')[2]}. The example is framed, its "
                    "views beside it.",
                    rows=[
                        (name, [png(picture, _SIDE) for picture in row])
                        for name, row in zip(self.paths, self.pictures[policy.name], strict=True)
                    ],
                    separate_first=True,
                )
                for policy in self.policies
            ],
            metadata={"data": self.data, "widefield": __version__},
        ).html()

    def _repr_html_(self) -> str:
        """Return the pictures, for Jupyter."""
        start, end = '<img src="data:image/png;base64,', '">'
        rows = (row for rows in self.pictures.values() for row in rows)
        return "<br>".join("".join(f"{start}{png(x, _SIDE)}{end}" for x in row) for row in rows)


@input_errors
@describe_arguments
def draw_views(
    data: Data,
    *,
    views: Sequence[str] | None = None,
    examples: int = 6,
    count: int = 6,
    image_size: ImageSize | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> DrawnViews:
    """Draw examples with their views under one or several policies, before any training.

    Args:
        views: policies, such as expert,microscopy; by default those of a short run of
            `pretrain`. In Python a sequence of names.
        examples: number of examples, spread over the data.
        count: number of views of each.
        image_size: side of square images, or HEIGHTxWIDTH; by default as for `pretrain`.
        out: a `.png` file for the pictures, or an `.html` file for a page of them.
        seed: seed of the views.
        on_note: called before the work with each note on the data, such as `print`.

    Raises:
        ValueError: invalid input, or views that need a trained encoder or a planted object.

    Example:
        >>> found = draw_views("photos", views=["none", "microscopy"], examples=2, count=3)
        >>> [len(row) for row in found.pictures["microscopy"]], found.policies[0].color
        ([4, 4], 1.0)
    """
    if out is not None:
        checked_output(out, (".html", ".png"), overwrite=overwrite)
    if min(examples, count) < 1:
        raise ValueError(f"examples is {examples} and count {count}; expected at least 1")
    named = None if views is None else [ViewSettings.named(name) for name in views]
    size = None if image_size is None else parse_size(image_size)
    with images_progress(quiet, "reading images") as progress:
        dataset = open_dataset(data, image_size=size, progress=progress)
    send_notes(dataset.notes, on_note)
    default = ViewSettings.named(views_for(DEFAULT_METHOD, steps=0, kind=dataset.kind))
    shown, measured = dataset.spread_rows(examples), dataset.spread_rows(_MEASURED)
    effects, pictures = [], {}
    for one in [default] if named is None else named:
        effects.append(_effect(one, dataset.subset(measured), seed=seed))
        pictures[one.names] = _drawn(one, dataset.subset(shown), count, seed=seed)
    found = DrawnViews(
        data=dataset.spec,
        paths=[dataset.paths[row] for row in shown],
        policies=tuple(effects),
        pictures=pictures,
        notes=(*dataset.notes, *(note for effect in effects for note in effect.notes())),
    )
    if out is not None:
        found.save(out, overwrite=overwrite)
    return found


def _views(settings: ViewSettings, dataset: Dataset, count: int, *, seed: int) -> list[Tensor]:
    """Return the examples, then `count` views of each, [n, C, H, W].

    Raises:
        ValueError: the views need more than images.
    """
    channels = dataset.images.shape[3]
    augmentation = settings.build(channels=channels, kept=dataset.bits, kind=dataset.kind)
    if augmentation.needs_mask or augmentation.gradient_calls or trained_parameters(augmentation):
        raise ValueError(
            f"views {settings.names!r} need a planted object or a trained network: draw others"
        )
    x = image_batch(dataset.images, torch.device("cpu"))
    with torch.no_grad():
        return [x, *augmentation(x, count, torch.Generator().manual_seed(seed))]


def _drawn(
    settings: ViewSettings, dataset: Dataset, count: int, *, seed: int
) -> list[list[NDArray[np.uint8]]]:
    """Return for each example its picture and those of its views."""
    columns = [
        render_views(x, dataset.kind, dataset.rate)
        for x in _views(settings, dataset, count, seed=seed)
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _effect(settings: ViewSettings, dataset: Dataset, *, seed: int) -> PolicyEffect:
    """Measure what the views change of images; of other examples nothing is measured."""
    summary = " ".join(VIEWS[name].summary for name, _ in settings.policies)
    if dataset.kind != "images":
        _views(settings, dataset.subset(slice(1)), 1, seed=seed)  # raises for views of others
        return PolicyEffect(
            name=settings.names, summary=summary, white=None, black=None, turned_white=None,
            turned_black=None, color=None, gray=None,
        )  # fmt: skip
    x, view = _views(settings, dataset, 1, seed=seed)
    shares = {}
    extremes = {
        "white": [v >= _WHITE for v in (x, view)],
        "black": [v <= _BLACK for v in (x, view)],
    }
    for word, found in extremes.items():
        # in every channel, as a pixel in color keeps what one of them holds
        before, after = (extreme.all(1).float().mean((1, 2)) for extreme in found)
        shares[word] = (
            (float(before.mean()), float(after.mean())),
            float((after - before >= _TURNED).float().mean()),
        )
    before, after = (_chroma(v) for v in (x, view))
    colored = before >= _COLORED
    color, gray = None, None
    if x.shape[1] == 3 and bool(colored.any()):
        color = float(after.mean() / before.mean())
        gray = float((after < _LOST * before)[colored].float().mean())
    return PolicyEffect(
        name=settings.names,
        summary=summary,
        white=shares["white"][0],
        black=shares["black"][0],
        turned_white=shares["white"][1],
        turned_black=shares["black"][1],
        color=color,
        gray=gray,
    )


def _chroma(x: Tensor) -> Tensor:
    """Return the mean over pixels of the largest minus the smallest channel, [n]."""
    return (x.amax(1) - x.amin(1)).mean((1, 2))
