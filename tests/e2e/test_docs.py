"""Every Python block of the README and the docs runs, as it stands, in an empty folder."""

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}", code)
        for page in PAGES
        for code in ("\n".join(BLOCK.findall(page.read_text())),)
        if code
    ]


@pytest.mark.parametrize(("page", "code"), blocks(), ids=[page for page, _ in blocks()])
def test_code_runs(page: str, code: str, in_tmp: Path) -> None:
    with warnings.catch_warnings():
        # Lightning's Trainer advises on workers and intervals; the page is about the loss.
        warnings.simplefilter("ignore")
        exec(compile(code, page, "exec"), {"__name__": page})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target
