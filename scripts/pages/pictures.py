"""Pictures that a longer command draws: docs/views-drawn.png and docs/views-small.png."""

from PIL import Image

from pages.format import ROOT
from widefield.views import VIEWS

VIEW_PICTURES = [ROOT / "docs" / name for name in ("views-drawn.png", "views-small.png")]
COMMAND = "python benchmarks/view_gallery.py"


def missing_views() -> set[str]:
    """Return the view policies that are on no picture, and those on one that are gone."""
    drawn: set[str] = set()
    for path in VIEW_PICTURES:
        with Image.open(path) as picture:
            drawn |= set(picture.info["Description"].split())
    return drawn ^ set(image_views())


def image_views() -> list[str]:
    """Return the policies that change images; those of windows and sounds are on no picture."""
    return [name for name, policy in VIEWS.items() if policy.stage in ("image", "picture", "any")]
