"""What is on a page, read by an HTML parser, and text that must not become a part of it."""

import re
from html.parser import HTMLParser

HOSTILE = "<script>alert('x')</script>\"&'"


class HtmlPage(HTMLParser):
    """Tags with attributes, text, and whether every element that was opened was closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def assert_escaped(text: str, times: int) -> None:
    """`HOSTILE` is at least so often on a page, as text alone."""
    page = HtmlPage(text)
    assert page.open == []
    assert "<script" not in text
    assert not any(name.startswith("on") for _, attrs in page.tags for name in attrs)
    assert "".join(page.text).count(HOSTILE) >= times


def assert_stands_alone(text: str) -> None:
    """A page is well formed, has no script and nothing from elsewhere, and its links resolve."""
    page = HtmlPage(text)
    assert page.open == []
    for tag, attrs in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form")
        for name in ("src", "href", "xlink:href"):
            assert (attrs.get(name) or "#").startswith(("data:image/png;base64,", "#"))
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"|http-equiv', "", text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 0
    references = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', text)
    assert references
    assert {a or b for a, b in references} <= set(ids)
