"""One run, described: which method, views and encoder, with their settings, and the run's own.

The same names are the arguments of `widefield.pretrain` and the options of `widefield pretrain`;
`run.yaml` nests them. A setting stands, with its only default, on the part that it sets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le, Lt

from widefield.core.names import check_name
from widefield.core.settings import Settings
from widefield.encoders import EncoderSettings
from widefield.methods import METHODS, MethodConfig
from widefield.views import VIEWS, ViewSettings

Schedule = Literal["cosine", "constant"]


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """Settings of one pretraining run.

    Raises:
        ValueError: a setting is out of its range; the message says which and what is allowed.

    Example:
        >>> recipe = Recipe(method=METHODS["s-diet"](), epochs=10)
        >>> recipe = recipe.changed({"method": "simclr", "temperature": 0.2})
        >>> recipe.method.name, recipe.method.lr
        ('simclr', 0.006)
    """

    method: MethodConfig
    """Objective to train, see docs/methods.md; auto goes by epochs, their steps, and start."""
    views: ViewSettings = field(default_factory=ViewSettings)
    """Policy that draws views: expert, viewmaker, none, ...; A+B applies A, then B."""
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    """A timm model, resnet-tiny, alexnet, wide-resnet-34-5, conv1d; auto is one of these."""
    init: str | None = None
    """Encoder to go on from: a run, a file of weights, timm:NAME, a model folder; docs/start.md."""
    init_lr_scale: Annotated[float, Gt(0)] = 0.3
    """Learning rate of an encoder that has a start, as a multiple of lr."""
    layer_decay: Annotated[float, Gt(0), Le(1)] = 1.0
    """Factor of that rate from each layer to the one before it."""
    freeze_blocks: Annotated[int, Ge(0)] = 0
    """First layers of a start that are not trained."""
    freeze_norm_layers: bool = False
    """Leave the norms of a start as they are."""
    epochs: Annotated[int, Ge(1)] = 100
    """Passes over the data."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Examples a step, over all processes; by default fewer for fewer than 4,096 examples."""
    micro_batch: Annotated[int | None, Ge(1)] = None
    """Examples that pass through the encoder at a time, by default all: fewer take less memory."""
    optimizer: Literal["adamw", "sgd", "lars"] = "adamw"
    """Optimizer of encoder and projector; sgd and lars have momentum 0.9."""
    schedule: Schedule = "cosine"
    """Learning rate after the warm-up: half a cosine towards zero, or constant."""
    weight_decay: Annotated[float, Ge(0)] = 0.05
    """Weight decay of weight matrices and head rows, decoupled with adamw."""
    decay_bias_and_norm: bool = False
    """Decay biases and the gains of norms too, as published for S-DIET."""
    drop_last: bool = True
    """Leave out the last, smaller batch of an epoch; one of a single example always is."""
    warmup_epochs: Annotated[float, Ge(0)] = 3.0
    """Epochs of linear warm-up, half of all epochs at most."""
    warmup_steps: Annotated[int | None, Ge(0)] = None
    """Steps of linear warm-up, in place of warmup_epochs."""
    precision: Literal["auto", "32", "bf16"] = "auto"
    """Arithmetic of the encoder; auto takes bf16 where the machine has it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on; auto takes a GPU where there is one."""
    seed: Annotated[int, Ge(0), Lt(2**32)] = 0
    """Seed of weights, rows, batch order, views and planted features."""
    max_examples: Annotated[int | None, Gt(0)] = None
    """Use a class-balanced first N examples."""
    image_size: Annotated[int | None, Gt(0)] = None
    """Side of square images; by default the data's own, or a multiple of 32 if sizes differ."""
    seconds: Annotated[float | None, Gt(0)] = None
    """Length of an example of sounds; by default 1."""
    sample_rate: Annotated[int | None, Ge(1000)] = None
    """Samples a second of sounds; by default the data's own, at most 16,000."""
    checkpoint_every: Annotated[int, Ge(1)] = 10
    """Epochs between checkpoints."""
    checkpoint_minutes: Annotated[float, Gt(0)] = 1.0
    """Minutes between checkpoints within long epochs; more where saving takes over 5 % of them."""
    metrics_every: Annotated[int, Ge(1)] = 50
    """Steps between rows of steps.csv, the loss while an epoch is under way."""
    health_every: Annotated[int, Ge(1)] = 10
    """Epochs between label-free health checks."""

    def flat(self) -> dict[str, Any]:
        """Return every value under its flat name, those of method, views and encoder included."""
        run = {name: getattr(self, name) for name in RUN_SETTINGS}
        parts = {**self.encoder.flat(), **self.method.flat(), **self.views.flat()}
        return {"method": self.method.name, "views": self.views.names, **parts, **run}

    def opening(self) -> dict[str, Any]:
        """Return what `open_dataset` gets to know of how the examples are wanted."""
        names = ("max_examples", "image_size", "seconds", "sample_rate", "seed")
        return {name: getattr(self, name) for name in names}

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with other values under some flat names.

        Another `method` or other `views` come with their own defaults, and the same ones by name
        keep their settings; other names are then looked up in the run, the method, the views and
        the encoder.

        Raises:
            ValueError: a name belongs to no part of this recipe; the message names those it fits.
        """
        rest = dict(values)
        method, views = rest.pop("method", self.method), rest.pop("views", self.views)
        method = self.method if method == self.method.name else _method(method)
        if not isinstance(views, ViewSettings):
            named = ViewSettings.named(views)
            views = self.views if named.names == self.views.names else named
        encoder = self.encoder.changed(rest)
        run = {name: rest.pop(name) for name in RUN_SETTINGS if name in rest}
        for name in rest:
            _refuse_stranger(name, method, views, encoder)
        method, views = method.changed(rest), views.changed(rest)
        return replace(self, method=method, views=views, encoder=encoder, **run)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for `run.yaml`."""
        method = {"name": self.method.name, **self.method.to_dict()}
        return {**super().to_dict(), "method": method, "views": self.views.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build the recipe that `to_dict` wrote.

        Raises:
            ValueError: a key is unknown or missing.
        """
        method = dict(values["method"])
        settings = type(_method(method.pop("name")))
        views = ViewSettings.from_dict(values["views"])
        return super().from_dict({**values, "method": settings.from_dict(method), "views": views})


PARTS = ("method", "views", "encoder")
"""Names of the settings that choose a part of the run, which has settings of its own."""

RUN_SETTINGS = tuple(name for name in Recipe.__dataclass_fields__ if name not in PARTS)
"""Names of the settings that belong to the run itself."""


def _method(given: str | MethodConfig) -> MethodConfig:
    if isinstance(given, MethodConfig):
        return given
    check_name("method", given, METHODS)
    return METHODS[given]()


def owners() -> dict[str, list[str]]:
    """Return, for each setting of methods and views, the names of those that have it."""
    result: dict[str, list[str]] = {}
    for name, kind in {**METHODS, **{n: policy.settings for n, policy in VIEWS.items()}}.items():
        for setting in kind().flat():
            result.setdefault(setting, []).append(name)
    return result


def _refuse_stranger(
    name: str, method: MethodConfig, views: ViewSettings, encoder: EncoderSettings
) -> None:
    """Refuse a setting that neither `method`, `views` nor `encoder` has."""
    if name in {**method.flat(), **views.flat(), **encoder.flat()}:
        return
    known = owners()
    settings = (*PARTS, *encoder.flat(), *RUN_SETTINGS, *known)
    check_name("setting", name, settings, list_command="widefield pretrain --help")
    *others, last = known[name]
    having = f"{', '.join(others)} and {last}" if others else last
    raise ValueError(
        f"{name} is no setting of {method.name} with views {views.names}: it is one of {having}"
    )
