"""Python blocks of the README and the docs run, links exist, and the README is easy to read."""

import re
import statistics
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
NO_PROSE = re.compile(
    r"^```.*?^```|^[|#<!].*?$", re.DOTALL | re.MULTILINE
)  # code, tables, headings, comments, pictures
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
SMALLER = {
    "max_examples=512": "max_examples=64",
    "torch.rand(128, 3, 32, 32)": "torch.rand(32, 3, 16, 16)",
    "batch_size=32, s": "batch_size=8, s",  # as many steps
}
"""Sizes of the README and of `docs/lightning.md` that show nothing more than smaller ones."""


def blocks() -> list[tuple[str, str]]:
    return [
        (f"{page.relative_to(ROOT)}", code)
        for page in PAGES
        for code in ("\n".join(BLOCK.findall(page.read_text())),)
        if code
    ]


@pytest.mark.parametrize(("page", "code"), blocks(), ids=[page for page, _ in blocks()])
def test_code_runs(page: str, code: str, in_tmp: Path) -> None:
    for size, smaller in SMALLER.items():
        code = code.replace(size, smaller)
    with warnings.catch_warnings():
        # Lightning's Trainer advises on workers and intervals; the page is about the loss.
        warnings.simplefilter("ignore")
        exec(compile(code, page, "exec"), {"__name__": page})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def sentence_lengths(page: str) -> list[int]:
    """Return the number of words of each sentence outside code, tables and headings."""
    text = re.sub(r"\]\([^)]*\)", "]", NO_PROSE.sub("\n\n", page))
    sentences = re.split(r"(?<=[.!?])\W*\s|\n\s*\n|\n- |\n\d\. | · ", text)
    return [n for n in (len(re.findall(r"\w[\w'’-]*", sentence)) for sentence in sentences) if n]


def test_sentences_are_counted() -> None:
    page = (
        "# Title here\n\nOne two. Three [four](five/six) `seven`!\n- eight\n```\ncode\n```\n| a |\n"
    )
    assert sentence_lengths(page) == [2, 3, 1]


def test_the_readme_has_short_sentences() -> None:
    found = sentence_lengths((ROOT / "README.md").read_text())
    lengths = [length for length in found if length > 3]  # names in lists of links are no sentences
    assert len(lengths) > 30
    assert statistics.median(lengths) <= 17
    assert statistics.quantiles(lengths, n=10)[-1] <= 35
