"""Self-supervised learning that keeps the whole field of features in view."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from widefield.version import __version__ as __version__

if TYPE_CHECKING:
    from widefield import losses as losses
    from widefield import methods as methods
    from widefield import metrics as metrics
    from widefield import views as views
    from widefield.audits.audit import audit as audit
    from widefield.audits.result import Audit as Audit
    from widefield.config.recipe import Recipe as Recipe
    from widefield.config.recipes import make_recipe as make_recipe
    from widefield.head import PerExampleHead as PerExampleHead
    from widefield.inference.open_encoder import load as load
    from widefield.workflows.classify import classify as classify
    from widefield.workflows.embed import embed as embed
    from widefield.workflows.embedder import Embedder as Embedder
    from widefield.workflows.explore import explore as explore
    from widefield.workflows.export import export as export
    from widefield.workflows.plan import plan as plan
    from widefield.workflows.pretrain import pretrain as pretrain
    from widefield.workflows.probe import probe as probe

# Loaded when first asked for: torch takes seconds to import, which `widefield --help` has not.
_MODULES = ("losses", "methods", "metrics", "views")
_HOMES = {
    "Audit": "widefield.audits.result",
    "Embedder": "widefield.workflows.embedder",
    "Recipe": "widefield.config.recipe",
    "PerExampleHead": "widefield.head",
    "audit": "widefield.audits.audit",
    "classify": "widefield.workflows.classify",
    "embed": "widefield.workflows.embed",
    "explore": "widefield.workflows.explore",
    "export": "widefield.workflows.export",
    "load": "widefield.inference.open_encoder",
    "make_recipe": "widefield.config.recipes",
    "plan": "widefield.workflows.plan",
    "pretrain": "widefield.workflows.pretrain",
    "probe": "widefield.workflows.probe",
}

__all__ = ["__version__", *_MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"widefield.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'widefield' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
