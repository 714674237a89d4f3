"""Settings of one run: method, views and encoder with their settings, and those of the run.

The same names are the arguments of `widefield.pretrain` and the options of `widefield pretrain`;
`run.yaml` nests them. Each setting has its default in one place.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le, Lt

from widefield.core.errors import option
from widefield.core.names import check_name
from widefield.core.settings import Settings
from widefield.core.types import Fit, PixelStorage, parse_size, size_text
from widefield.encoders import EncoderSettings
from widefield.methods import METHODS, MethodConfig
from widefield.views import VIEWS, ViewSettings

Schedule = Literal["cosine", "constant"]
CompileMode = Literal["none", "default", "reduce-overhead"]


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
    """Objective to train, see docs/methods.md; auto picks by epochs, steps per epoch, and init."""
    views: ViewSettings = field(default_factory=ViewSettings)
    """Augmentation policy: moderate, expert, none, ...; A+B applies A, then B. docs/views.md."""
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    """A timm model, dictionary-tiny, resnet-tiny, alexnet, conv1d, or your FILE.py:FUNCTION."""
    init: str | None = None
    """Initial weights: a run, a file of weights, timm:NAME, a model folder; docs/start.md."""
    init_lr_scale: Annotated[float | None, Gt(0)] = None
    """Learning rate of initial weights in multiples of lr; 0.03, and 0.33 without batch norm."""
    layer_decay: Annotated[float, Gt(0), Le(1)] = 1.0
    """Factor of that rate from each layer to the one before it."""
    freeze_blocks: Annotated[int, Ge(0)] = 0
    """First layers of initial weights that are not trained."""
    freeze_norm_layers: bool = True
    """Keep weights and running statistics of the norms of initial weights."""
    init_average: Annotated[float | None, Gt(0), Le(1)] = None
    """Share of trained weights in their average with the initial ones; chosen at the end."""
    epochs: Annotated[int, Ge(1)] = 100
    """Passes over the data."""
    batch_size: Annotated[int, Ge(1)] = 256
    """Examples a step, over all processes; by default fewer for fewer than 4,096 examples."""
    micro_batch: Annotated[int | None, Ge(1)] = None
    """Examples that pass through the encoder at a time, by default all: fewer take less memory."""
    sync_batch_norm: bool = False
    """Normalize over the batches of all processes, where batch normalization is."""
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
    """Precision of the encoder; auto takes bf16 where the machine has it."""
    compile: CompileMode = "none"
    """Compile the encoder's pass by torch: default, or reduce-overhead for CUDA graphs."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to train on: auto, cpu or cuda; auto takes a GPU where there is one."""
    seed: Annotated[int, Ge(0), Lt(2**32)] = 0
    """Seed of weights, rows, batch order, views and planted features."""
    max_examples: Annotated[int | None, Gt(0)] = None
    """Use a class-balanced first N examples."""
    image_size: Annotated[int | str | None, Gt(0)] = None
    """Side of square images or HEIGHTxWIDTH; by default the data's, or a multiple of 32."""
    fit: Fit = "crop"
    """Images of another shape: crop cuts around the center, pad adds black, squash does neither."""
    pixels: PixelStorage = "auto"
    """Keep decoded images, or encoded ones that are decoded at each read; auto goes by space."""
    seconds: Annotated[float | None, Gt(0)] = None
    """Length of an example of sounds; by default 1."""
    sample_rate: Annotated[int | None, Ge(1000)] = None
    """Samples a second of sounds; by default the data's own, at most 16,000."""
    checkpoint_every: Annotated[int, Ge(1)] = 10
    """Epochs between checkpoints."""
    checkpoint_minutes: Annotated[float, Gt(0)] = 1.0
    """Minutes between checkpoints within long epochs; more where saving takes over 5 % of them."""
    metrics_every: Annotated[int, Ge(1)] = 50
    """Steps between rows of steps.csv, the loss within an epoch."""
    health_every: Annotated[int, Ge(1)] = 10
    """Epochs between label-free health checks."""

    def __post_init__(self) -> None:
        """Check every field, and bring `image_size` to one spelling."""
        if isinstance(self.image_size, str | tuple | list):
            object.__setattr__(self, "image_size", size_text(self.image_size))
        super().__post_init__()

    def flat(self) -> dict[str, Any]:
        """Return every value under its flat name, those of method, views and encoder included."""
        run = {name: getattr(self, name) for name in RUN_SETTINGS}
        parts = {**self.encoder.flat(), **self.method.flat(), **self.views.flat()}
        return {"method": self.method.name, "views": self.views.names, **parts, **run}

    def data_options(self) -> dict[str, Any]:
        """Return the arguments of `open_dataset`."""
        names = ("max_examples", "fit", "pixels", "seconds", "sample_rate", "seed")
        size = None if self.image_size is None else parse_size(self.image_size)
        return {name: getattr(self, name) for name in names} | {"image_size": size}

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with other values under some flat names.

        A new `method` and new `views` have their default settings, the same ones by name keep
        theirs. Other names are settings of the run, the method, the views or the encoder.

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
            _check_setting(name, method, views, encoder)
        method, views = method.changed(rest), views.changed(rest)
        return replace(self, method=method, views=views, encoder=encoder, **run)

    def to_dict(self) -> dict[str, Any]:
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
"""Settings that select a part of the run, which has its own settings."""

RUN_SETTINGS = tuple(name for name in Recipe.__dataclass_fields__ if name not in PARTS)
"""Settings of the run itself."""


def _method(overrides: str | MethodConfig) -> MethodConfig:
    if isinstance(overrides, MethodConfig):
        return overrides
    check_name("method", overrides, METHODS)
    return METHODS[overrides]()


def settings_by_name() -> dict[str, list[str]]:
    """Return setting -> names of the methods and views that have it."""
    result: dict[str, list[str]] = {}
    for name, kind in {**METHODS, **{n: policy.settings for n, policy in VIEWS.items()}}.items():
        for setting in kind().flat():
            result.setdefault(setting, []).append(name)
    return result


def _check_setting(
    name: str, method: MethodConfig, views: ViewSettings, encoder: EncoderSettings
) -> None:
    if name in {**method.flat(), **views.flat(), **encoder.flat()}:
        return
    known = settings_by_name()
    settings = (*PARTS, *encoder.flat(), *RUN_SETTINGS, *known)
    check_name("setting", name, settings, list_command="run.yaml")
    raise ValueError(
        f"{option(name)} is not a setting of {method.name} with views {views.names}: it is one of "
        f"{listed(known[name])}"
    )


def listed(names: Iterable[str]) -> str:
    """Return names as in a sentence."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
