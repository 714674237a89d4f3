"""One run, described: every setting and its only default.

The same names are the arguments of `widefield.pretrain`, the options of `widefield pretrain` and
the keys of `run.yaml`.
"""

import ast
import dataclasses
import inspect
import math
import numbers
import typing
from dataclasses import dataclass
from typing import Any, Literal

from widefield.core.names import check_name as check_name

Budget = Literal["sphere", "ball"]
RowLoss = Literal["decoupled", "batch-ce"]
ContrastiveLoss = Literal["nt-xent", "one-sided"]
Directions = Literal["both", "one"]
Schedule = Literal["cosine", "constant"]
PairImportance = Literal["quadratic", "infonce", "gaussian", "inverse"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Settings of one pretraining run.

    Raises:
        ValueError: a setting is out of its range; the message says which and what is allowed.
    """

    method: str = "s-diet"
    """Objective: s-diet, diet, simclr, byol, ... or supervised; docs/methods.md lists them all."""
    views: str = "expert"
    """View policy: expert, viewmaker, none, ...; A+B applies both; docs/views.md lists them all."""
    noise_std: float = 0.1
    """Standard deviation of the views noise and noise:object, in units of the images' range."""
    viewmaker_budget: float = 0.05
    """Mean absolute change that learned views make."""
    viewmaker_shape: Budget = "sphere"
    """Learned views lie on their budget's L1 sphere, or in the ball."""
    viewmaker_clamp: bool = True
    """Hold learned views in [0, 1]."""
    opponent_lr: float = 1e-3
    """Learning rate of views that learn (Adam, constant)."""
    attack_budget: float = 8 / 255
    """Greatest change of a pixel in adversarial views."""
    attack_steps: int = 3
    """Steps of gradient ascent of adversarial views."""
    encoder: str = "auto"
    """Any timm model, or resnet-tiny; auto takes resnet-tiny on a CPU and resnet18 on a GPU."""
    epochs: int = 100
    """Passes over the data."""
    batch_size: int = 256
    """Examples a step, over all processes."""
    gather: bool = False
    """In several processes, one loss over the examples of all, where a loss compares examples."""
    lr: float = 2e-2
    """Peak learning rate of encoder and projector."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Of encoder and projector; sgd has momentum 0.9."""
    schedule: Schedule = "cosine"
    """Learning rate after the warm-up: half a cosine towards zero, or constant."""
    weight_decay: float = 0.05
    """Decoupled weight decay of weight matrices and head rows."""
    warmup_epochs: float = 3.0
    """Epochs of linear warm-up."""
    head_lr_scale: float = 1.0
    """Learning rate of the per-example head, as a multiple of lr."""
    row_loss: RowLoss = "decoupled"
    """How s-diet compares features with rows: decoupled (ours), or batch-ce as in the paper."""
    logit_scale: float = 10.0
    """Multiplies the logits of s-diet."""
    label_smoothing: float = 0.8
    """Share of the target spread over all classes, for diet and the batch-ce of s-diet."""
    temperature: float = 0.1
    """Softmax temperature of simclr, infonce, alpha-cl and moco."""
    simclr_loss: ContrastiveLoss = "nt-xent"
    """The standard loss of simclr, or one-sided as Feature Dropout's code has it."""
    infonce_eps: float = 1.0
    """Weight of the positive pair among infonce's negatives; 0 leaves it out."""
    pair_importance: PairImportance = "infonce"
    """How much each pair counts in alpha-cl."""
    redundancy_weight: float = 0.005
    """Weight of correlations between dimensions, for barlow-twins and vicreg."""
    teacher_momentum: float = 0.99
    """Share of itself that the teacher of byol or moco keeps at a step."""
    byol_directions: Directions = "one"
    """In byol one view predicts the other, or both do, as published, at twice the cost."""
    queue_size: int = 4096
    """Older keys that moco compares with."""
    projector_layers: int = 3
    """Linear layers of the projection head."""
    projector_width: int = 512
    """Hidden width of the projection head."""
    projector_dim: int = 128
    """Output width of the projection head, and of a row of the per-example head."""
    projector_batch_norm: bool = True
    """Batch normalisation in the projection head's hidden layers."""
    predictor_width: int = 512
    """Hidden width of the predictor of byol and simsiam."""
    row_start: Literal["embedding", "random"] = "embedding"
    """First value of a row: its example's own first embedding, or random as in the paper."""
    row_update: Literal["exact", "estimated"] = "exact"
    """Missed steps of a row: replayed exactly, or estimated as in the paper."""
    row_store: Literal["auto", "device", "host", "disk"] = "auto"
    """Where head rows live; auto takes the first of which they fill under a quarter."""
    row_moments: Literal["float32", "bf16"] = "float32"
    """Type of the moments of head rows: bf16 takes half the space."""
    row_second_moment: Literal["element", "row"] = "element"
    """Second moments of a head row: one for each element, or one for the row."""
    precision: Literal["auto", "32", "bf16"] = "auto"
    """Arithmetic of the encoder; auto takes bf16 where the machine has it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    seed: int = 0
    """Seeds weights, rows, batch order, views and planted features."""
    limit: int | None = None
    """Use a class-balanced first N examples."""
    image_size: int | None = None
    """Side of the square images; by default the data's own."""
    checkpoint_every: int = 10
    """Epochs between checkpoints."""
    health_every: int = 10
    """Epochs between label-free health checks."""

    def __post_init__(self) -> None:
        """Check every setting's kind, and the range of those that have one."""
        for field in dataclasses.fields(self):
            _check_kind(field.name, getattr(self, field.name), field.type)
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("weight_decay", "warmup_epochs", "seed", "infonce_eps"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("limit", "image_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must be in [0, 1), got {self.label_smoothing}")
        if not 0 <= self.teacher_momentum <= 1:
            raise ValueError(f"teacher_momentum must be in [0, 1], got {self.teacher_momentum}")
        for name, allowed in _choices().items():
            check_name(name, getattr(self, name), allowed)

    @classmethod
    def named(cls, name: str = "default", **settings: Any) -> "Recipe":
        """The recipe `name` for method and views in `settings`, with `settings` on top.

        Example:
            >>> Recipe.named("paper", epochs=10).label_smoothing
            0.8
            >>> Recipe.named(method="simclr", views="viewmaker:as_published").temperature
            0.07
        """
        check_name("recipe", name, tuple(RECIPES))
        known = tuple(f.name for f in dataclasses.fields(cls))
        for setting in settings:
            check_name("setting", setting, known)
        method = settings.get("method", "s-diet")
        with_views: dict[str, Any] = {}
        for part in str(settings.get("views", "")).split("+"):
            with_views |= VIEW_RECIPES.get(part, {}).get(method, {})
        return cls(**{**RECIPES[name].get(method, {}), **with_views, **settings})


RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "default": {
        "s-diet": {"projector_layers": 2},
        "diet": {"lr": 2e-3},
        "diet-mse": {"lr": 1e-3},
        "simclr": {"lr": 6e-3, "projector_layers": 2},
        "spectral": {"projector_layers": 2},
        "infonce": {"projector_layers": 2},
        "alpha-cl": {"projector_layers": 2},
        "barlow-twins": {"projector_dim": 512},
        "vicreg": {"lr": 6e-3, "projector_dim": 512, "redundancy_weight": 1.0},
        "moco": {"projector_layers": 2, "temperature": 0.2},
        "byol": {"projector_layers": 2},
        "simsiam": {"projector_dim": 512, "predictor_width": 128},
    },
    "paper": {
        "s-diet": {
            "epochs": 5000,
            "lr": 1e-3,
            "weight_decay": 0.05,
            "warmup_epochs": 0.0,
            "head_lr_scale": 1.0,
            "logit_scale": 1.0,
            "label_smoothing": 0.8,
            "row_loss": "batch-ce",
            "projector_layers": 3,
            "projector_batch_norm": False,
            "row_start": "random",
            "row_update": "estimated",
        },
        "diet": {
            "epochs": 5000,
            "lr": 1e-3,
            "weight_decay": 0.05,
            "warmup_epochs": 0.0,
            "head_lr_scale": 1.0,
            "label_smoothing": 0.8,
        },
    },
    "feature-dropout": {
        "simclr": {
            "epochs": 200,
            "lr": 0.03,
            "optimizer": "sgd",
            "schedule": "constant",
            "weight_decay": 1e-4,
            "warmup_epochs": 0.0,
            "temperature": 0.07,
            "simclr_loss": "one-sided",
        },
    },
}
"""Settings by recipe and method, where they differ from the fields above: `default` is what we
measured to be best, s-diet and simclr at 25 to 50 epochs and most others at half a minute
(docs/methods.md says which), `paper` is S-DIET (2025), appendix C, `feature-dropout`
is Tamkin et al. (2022), with their views `viewmaker:as_published` or `expert:fd`."""

VIEW_RECIPES: dict[str, dict[str, dict[str, Any]]] = {
    "viewmaker:as_published": {"simclr": {"temperature": 0.07, "simclr_loss": "one-sided"}},
}
"""Settings by views and method, on top of those of the recipe: the loss that the viewmaker was
published with."""


_POSITIVE = (
    "noise_std",
    "viewmaker_budget",
    "opponent_lr",
    "attack_budget",
    "attack_steps",
    "epochs",
    "batch_size",
    "lr",
    "head_lr_scale",
    "logit_scale",
    "temperature",
    "redundancy_weight",
    "queue_size",
    "predictor_width",
    "projector_layers",
    "projector_width",
    "projector_dim",
    "checkpoint_every",
    "health_every",
)


def _check_kind(name: str, given: object, kind: object) -> None:
    """Refuse what is not a number where one belongs, and the like."""
    is_bool = isinstance(given, bool)
    if kind is bool:
        fits, expected = is_bool, "True or False"
    elif kind is float:
        fits = isinstance(given, numbers.Real) and not is_bool and math.isfinite(given)
        expected = "a finite number"
    elif kind in (int, int | None):
        fits = isinstance(given, numbers.Integral) and not is_bool
        expected = "a whole number"
    else:
        fits, expected = isinstance(given, str), "a word"
    fits = fits or (given is None and kind == int | None)
    if not fits:
        raise ValueError(f"{name} must be {expected}, got {given!r}")


def setting_help() -> dict[str, str]:
    """What each setting means: the docstring under its field."""
    body = ast.parse(inspect.getsource(Recipe)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name)
            texts[field.target.id] = ast.literal_eval(text.value)
    return texts


def _choices() -> dict[str, tuple[str, ...]]:
    """Settings that take one of a few words."""
    hints = typing.get_type_hints(Recipe)
    return {k: typing.get_args(t) for k, t in hints.items() if typing.get_origin(t) is Literal}
