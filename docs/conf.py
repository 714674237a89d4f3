"""The documentation site: `make site` writes it to site/, with warnings as errors.

The pages are README.md, docs/ and those beside them as they stand in the repository. Added here are
the table of contents, and a page of reference for each module with public names (docs/api.txt).
"""

import ast
import inspect
import re
import sys
from importlib import import_module
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, get_origin

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

import api  # noqa: E402
from widefield.version import __version__  # noqa: E402

project, author, version = "widefield", "the widefield authors", __version__
copyright = f"2026, {author}"

root_doc = "README"
include_patterns = [
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
    "docs/**.md", "docs/**.ipynb", "docs/reference/**.rst",
]  # fmt: skip
exclude_patterns = [".*", "build", "demo", "dist", "site", "src", "tests", "**.egg-info"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
nb_execution_mode = "off"  # `make tutorials` executes them
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
suppress_warnings = ["myst.header"]  # pages begin some sections at level 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True
napoleon_google_docstring, napoleon_numpy_docstring = True, False
napoleon_custom_sections = [("Source", "notes_style")]

html_theme = "furo"
html_title = f"widefield {version}"
html_extra_path = ["site"]  # index.html, which leads to README.html
html_show_sphinx = False
templates_path: list[str] = []

TUTORIALS = "photos pretrained_vit sounds audit own_loop"
GUIDES = (
    "first_hour results data scale cluster audio start explore classify audit readout tools "
    "lightning"
)
REFERENCE = "methods views losses recipe recipes dictionary head promises papers glossary"
DEVELOPMENT = "architecture versions studies notebook"


def contents() -> str:
    """Return the table of contents, which the sidebar shows."""
    tutorials = [f"docs/tutorials/{name}" for name in TUTORIALS.split()]
    guides = [f"docs/{name}" for name in GUIDES.split()]
    modules = [f"docs/reference/{module}" for module in api_modules()]
    pages = [f"docs/{name}" for name in REFERENCE.split() if name != "losses"]
    labs = sorted(f"docs/labs/{page.stem}" for page in (ROOT / "docs" / "labs").glob("*.md"))
    own = [f"docs/{name}" for name in DEVELOPMENT.split()]
    own += ["CONTRIBUTING", "CHANGELOG", "SECURITY"]
    trees = {"Tutorials": tutorials, "Guides": guides, "API": modules}
    trees |= {"Reference": pages, "Labs": labs, "Development": own}
    return "\n".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names) + "\n```\n"
        for caption, names in trees.items()
    )


def api_modules() -> list[str]:
    """Return the modules with public names."""
    return [module for module, _ in by_module()]


def by_module() -> list[tuple[str, list[str]]]:
    """Return each module with its public names."""
    pairs = sorted(name.rpartition(".")[::2] for name in api.promised_names())
    return [(m, [n for _, n in group]) for m, group in groupby(pairs, lambda pair: pair[0])]


def write_reference(app: Any) -> None:
    """Write a page for each module."""
    folder = ROOT / "docs" / "reference"
    folder.mkdir(exist_ok=True)
    for module, names in by_module():
        entries = [entry(module, name) for name in names]
        title = f"{module}\n{'=' * len(module)}\n\n.. currentmodule:: {module}\n\n"
        text = title + "\n".join(entry for entry in entries if entry)
        page = folder / f"{module}.rst"
        if not page.exists() or page.read_text() != text:  # else all pages would be built again
            page.write_text(text)


def entry(module: str, name: str) -> str:
    """Return the directive that documents a name; modules have pages of their own."""
    value = getattr(import_module(module), name)
    if inspect.ismodule(value):
        return ""
    if inspect.isclass(value):
        is_again = module != "widefield" and f"widefield.{name}" in api.promised_names()
        again = "   :no-index:\n" if is_again else ""
        return f".. autoclass:: {name}\n   :members:\n{again}"
    if callable(value):
        return f".. autofunction:: {name}\n"
    return f".. py:data:: {name}\n\n   {data_doc(module, name)}\n"


def data_doc(module: str, name: str) -> str:
    """Return the string below an assignment to `name`, in the module or in one of its files."""
    for loaded in [sys.modules[n] for n in sorted(sys.modules) if n.startswith(module)]:
        body = ast.parse(inspect.getsource(loaded)).body
        for node, below in pairwise(body):
            targets = (
                [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            )
            if name in [getattr(target, "id", None) for target in targets] and isinstance(
                below, ast.Expr
            ):
                return " ".join(marked(ast.literal_eval(below.value)).split())
    return ""


def marked(text: str) -> str:
    """Return plain text as reStructuredText: names in backticks are code, signs are themselves."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"`{part}`" if part.startswith("`") else re.sub(r"([|*]|_(?=\W|$))", r"\\\1", part)
        for part in parts
    )


def to_rst(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Make a docstring reStructuredText: formulas, which are indented, become literal blocks."""
    written, base, is_code = list[str](), 0, False
    for before, line in pairwise(["", *lines]):
        indent = len(line) - len(line.lstrip())
        if line.strip() and is_code and indent <= base:
            is_code = False
        if not before.strip() and line.strip() and not is_code and indent > base:
            written += ["", f"{' ' * base}::", ""]
            is_code = True
        if line.strip() and not is_code:
            base = indent
        prose = not is_code and not line.lstrip().startswith((">>>", "...", "*"))
        written.append(marked(line) if prose else line)
    lines[:] = written


def plain_types(app: Any, value: Any, bound: bool) -> None:
    """Show `Annotated[float, Gt(0)]` as float; the limits are in the text."""
    for function in (value, inspect.unwrap(value)):
        hints = getattr(function, "__annotations__", {})
        if inspect.isfunction(function):
            plain = {k: getattr(v, "__origin__", v) for k, v in hints.items() if is_limited(v)}
            function.__annotations__ = {**hints, **plain}


def is_limited(hint: Any) -> bool:
    """Return whether a type hint is an `Annotated` one."""
    return get_origin(hint) is Annotated


def prepare(app: Any, page: str, source: list[str]) -> None:
    """Make links to folders plain text, and add the table of contents to the first page."""
    folder = (ROOT / page).parent

    def text(link: re.Match[str]) -> str:
        return link[1] if (folder / link[2]).is_dir() else link[0]

    source[0] = re.sub(r"\[([^\]]+)\]\(([^)#:]+)\)", text, source[0])
    if page == root_doc:
        source[0] += contents()


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-before-process-signature", plain_types)
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", to_rst, priority=400)  # napoleon comes after it
