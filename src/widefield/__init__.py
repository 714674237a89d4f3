"""Self-supervised learning that keeps the whole field of features in view."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # from a checkout, where pip has not checked it
    raise ImportError(
        f"widefield needs Python 3.11 or later, and this is {sys.version.split()[0]}: "
        "python3.11 -m venv .venv, then .venv/bin/pip install widefield",
        name="widefield",
    )

import lazy_loader

# torch takes seconds to import, and `widefield --help` needs none of it.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
