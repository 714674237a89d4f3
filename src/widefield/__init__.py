"""Self-supervised learning that keeps the whole field of features in view."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widefield.audits.audit import audit as audit
    from widefield.audits.result import Audit as Audit
    from widefield.recipe import Recipe as Recipe
    from widefield.workflows.embed import embed as embed
    from widefield.workflows.export import export as export
    from widefield.workflows.extractor import load as load
    from widefield.workflows.plan import plan as plan
    from widefield.workflows.pretrain import pretrain as pretrain
    from widefield.workflows.probe import probe as probe

__version__ = "0.1.0"

# Loaded when first asked for: torch takes seconds to import, which `widefield --help` has not.
_HOMES = {
    "Audit": "widefield.audits.result",
    "audit": "widefield.audits.audit",
    "Recipe": "widefield.recipe",
    "embed": "widefield.workflows.embed",
    "export": "widefield.workflows.export",
    "load": "widefield.workflows.extractor",
    "plan": "widefield.workflows.plan",
    "pretrain": "widefield.workflows.pretrain",
    "probe": "widefield.workflows.probe",
}

__all__ = [
    "Audit",
    "Recipe",
    "__version__",
    "audit",
    "embed",
    "export",
    "load",
    "plan",
    "pretrain",
    "probe",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'widefield' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
