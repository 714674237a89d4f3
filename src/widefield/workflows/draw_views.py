"""Views of some examples under one or several policies, drawn before any training."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

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


@dataclass(frozen=True, kw_only=True)
class DrawnViews:
    """Examples, and their views under each policy."""

    data: str
    paths: list[str]
    policies: dict[str, str]
    """Policy -> what it does, in one sentence."""
    pictures: dict[str, list[list[NDArray[np.uint8]]]]
    """Policy -> for each example the image, then its views, uint8 [h, w, C]."""
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield views --json` prints them."""
        return {
            "data": self.data,
            "paths": self.paths,
            "policies": [{"name": n, "summary": text} for n, text in self.policies.items()],
            "notes": list(self.notes),
        }

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the pictures to a `.png` file, or a page of them to an `.html` file."""
        path = checked_output(path, (".html", ".png"), overwrite=overwrite)
        if path.suffix == ".html":
            write_page(self._page(), path, overwrite=overwrite)
            return
        sheet = contact_sheet(list(self.pictures.items()))
        write_atomically(path, lambda temp_path: temp_path.write_bytes(sheet))

    def _page(self) -> str:
        names = ", ".join(self.pictures)
        return AuditReport(
            title=f"widefield views of {self.data}",
            summary=f"What training would see of {len(self.paths)} examples with {names}.",
            notes=[f"Note: {note}." for note in self.notes],
            figures=[
                Gallery(
                    title=name,
                    caption=f"{summary} The example is framed, its views beside it.",
                    rows=[
                        (path, [png(image) for image in row])
                        for path, row in zip(self.paths, self.pictures[name], strict=True)
                    ],
                    separate_first=True,
                )
                for name, summary in self.policies.items()
            ],
            metadata={"data": self.data, "widefield": __version__},
        ).html()

    def _repr_html_(self) -> str:
        start, end = '<img src="data:image/png;base64,', '">'
        rows = (row for rows in self.pictures.values() for row in rows)
        return "<br>".join("".join(f"{start}{png(x)}{end}" for x in row) for row in rows)


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
        >>> [len(row) for row in found.pictures["microscopy"]]
        [4, 4]
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
    policies = [default] if named is None else named
    rows = dataset.spread_rows(examples)
    subset = dataset.subset(rows)
    found = DrawnViews(
        data=dataset.spec,
        paths=[dataset.paths[row] for row in rows],
        policies={
            one.names: " ".join(VIEWS[name].summary for name, _ in one.policies) for one in policies
        },
        pictures={one.names: _render(one, subset, count, seed=seed) for one in policies},
        notes=dataset.notes,
    )
    if out is not None:
        found.save(out, overwrite=overwrite)
    return found


def _render(
    settings: ViewSettings, dataset: Dataset, count: int, *, seed: int
) -> list[list[NDArray[np.uint8]]]:
    channels = dataset.images.shape[3]
    augmentation = settings.build(channels=channels, kept=dataset.bits, kind=dataset.kind)
    if augmentation.needs_mask or augmentation.gradient_calls or trained_parameters(augmentation):
        raise ValueError(
            f"views {settings.names!r} need a planted object or a trained network: draw others"
        )
    x = image_batch(dataset.images, torch.device("cpu"))
    with torch.no_grad():
        views = augmentation(x, count, torch.Generator().manual_seed(seed))
    columns = [render_views(part, dataset.kind, dataset.rate) for part in (x, *views)]
    return [list(row) for row in zip(*columns, strict=True)]
