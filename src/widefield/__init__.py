"""Self-supervised learning that keeps the whole field of features in view."""

import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):  # noqa: UP036  # from a checkout, where pip has not checked it
    raise ImportError(
        f"widefield needs Python 3.11 or later, and this is {sys.version.split()[0]}: "
        "python3.11 -m venv .venv, then .venv/bin/pip install widefield",
        name="widefield",
    )

from widefield.core.lazy import lazy_exports

if TYPE_CHECKING:
    from widefield import losses as losses
    from widefield import methods as methods
    from widefield import metrics as metrics
    from widefield import views as views
    from widefield.audits.audit import audit as audit
    from widefield.audits.result import Audit as Audit
    from widefield.config.recipe import Recipe as Recipe
    from widefield.config.recipes import make_recipe as make_recipe
    from widefield.encoders.weights.model_folder import register_with_timm as register_with_timm
    from widefield.head import PerExampleHead as PerExampleHead
    from widefield.inference.open_encoder import load as load
    from widefield.version import __version__ as __version__
    from widefield.workflows.classify import classify as classify
    from widefield.workflows.draw_views import draw_views as draw_views
    from widefield.workflows.embed import embed as embed
    from widefield.workflows.embedder import Embedder as Embedder
    from widefield.workflows.explore import explore as explore
    from widefield.workflows.export import export as export
    from widefield.workflows.plan import plan as plan
    from widefield.workflows.pretrain import pretrain as pretrain
    from widefield.workflows.probe import probe as probe
    from widefield.workflows.recover import recover as recover
    from widefield.workflows.search import search as search

# torch takes seconds to import, and `widefield --help` needs none of it.
__getattr__, __dir__ = lazy_exports(__name__)
