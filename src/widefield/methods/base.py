"""Base classes of all methods and of their settings."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import torch
from annotated_types import Gt
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from widefield.core.batch import check_index, check_views
from widefield.core.hardware import Memory
from widefield.core.names import check_name, plain_attributes
from widefield.core.settings import Settings
from widefield.core.types import WHOLE, Loss, Part, Shard


@dataclass(frozen=True, kw_only=True)
class BuildContext:
    """Properties of the run, its data and its encoder from which a method is built.

    Example:
        >>> from widefield.methods import SimCLRConfig
        >>> encoder, cpu = nn.Flatten(), torch.device("cpu")
        >>> context = BuildContext(
        ...     encoder=encoder, feature_dim=8, examples=4, labels={}, steps=9, batch_size=2,
        ...     weight_decay=0.0, seed=0, device=cpu, generator=torch.Generator(),
        ... )
        >>> type(SimCLRConfig().build(context)).__name__
        'SimCLR'
    """

    encoder: nn.Module
    """The encoder to train, with its initial weights."""
    feature_dim: int
    """D, the encoder's output width."""
    examples: int
    """n."""
    labels: dict[str, Tensor]
    """Class ids of every example, task -> int64 [n]; empty without labels."""
    steps: int
    """T, the optimizer steps of the whole run."""
    batch_size: int
    """b, over all processes."""
    weight_decay: float
    """The run's weight decay, for parameters that the method optimizes itself."""
    seed: int
    device: torch.device
    """Device on which the encoder is trained."""
    generator: Generator
    """The run's random generator, on `device`."""
    folder: Path | None = None
    """Folder for a method's files of the run; None without a run."""
    shard: Shard = WHOLE
    """Which examples this process trains on."""
    targets: NDArray[Any] | None = None
    """Features of teachers for every example [n, m]; None without teachers."""


class Method(nn.Module, ABC):
    """One objective: turns views of a batch into a loss on the encoder.

    A method is a plain module, whose parameters (such as a projector) are trained together with the
    encoder, in any training loop. Its class takes the encoder's output width, a config and single
    settings by name, `SimCLR(128, temperature=0.2)`, and as keyword arguments what it needs of the
    data, such as `examples`.

    Example:
        >>> import torch
        >>> class Agreement(Method):
        ...     view_count = 2
        ...     def _loss(self, encoder, views, index):
        ...         first, second = map(encoder, views)
        ...         return Loss((first - second).square().mean())
        >>> views = list(torch.ones(2, 4, 3))
        >>> Agreement()(torch.nn.Identity(), views, torch.arange(4)).total
        tensor(0.)
    """

    config_class: ClassVar[type["MethodConfig"]]
    """Its settings, if they build it as `MethodConfig.build` does."""
    view_count: int
    """Number of views of each example that a step needs: 1 for DIET, 2 for pair losses."""
    needs_labels: bool = False
    """Whether the loss uses the examples' labels."""
    moves_after_step: bool = False
    """Whether `after_step` has to be called after every optimizer step."""
    head_lr_scale: float = 1.0
    """Learning rate of `head_parameters`, as a multiple of the run's."""
    examples: int | None = None
    """n, for methods with weights or labels of each example."""
    frozen: bool = False
    """While set, losses are computed without an optimizer step after them."""

    def __init_subclass__(cls) -> None:
        """Let the settings build the method that names them."""
        super().__init_subclass__()
        if "config_class" in vars(cls):
            cls.config_class.method_class = cls

    def __init__(self) -> None:
        super().__init__()
        self._step_pending = False

    if TYPE_CHECKING:

        def __call__(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss: ...

    def extra_repr(self) -> str:
        return plain_attributes(self)

    def forward(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss of a batch, which one optimizer step and `after_step` follow.

        Args:
            encoder: maps images [B, C, H, W] to features [B, D].
            views: `view_count` views, each [B, C, H, W].
            index: which examples these are, integers [B] in host memory.

        Raises:
            ValueError: the views or the index do not fit, or `after_step` was not called since the
                last loss.
        """
        check_views(views, self.view_count)
        check_index(index, len(views[0]), self.examples)
        if self._step_pending and not self.frozen:
            raise ValueError(
                f"{type(self).__name__} got a second batch before after_step(): call it once "
                "after each optimizer.step()"
            )
        loss = self._loss(encoder, views, index.long())
        if self.moves_after_step and not self.frozen:
            self._step_pending = self.training and torch.is_grad_enabled()
        return loss

    @abstractmethod
    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss of `views` (each [B, C, H, W]) of the examples `index` (int64 [B])."""

    def after_step(self) -> None:
        """Update what has no gradient, after an optimizer step.

        Raises:
            ValueError: no loss was computed since the last call.
        """
        if not self.moves_after_step:
            return
        if not self._step_pending:
            raise ValueError(
                f"after_step() of {type(self).__name__} follows a loss: call it once a step"
            )
        self._step_pending = False
        self._move()

    def _move(self) -> None:
        """Update what has no gradient, such as a target network or a queue; by default nothing."""

    def head_parameters(self) -> list[nn.Parameter]:
        """Return parameters that learn at `head_lr_scale`; none unless the head is dense."""
        return []

    def projection_head(self) -> nn.Module | None:
        """Return the `projector`, features [B, D] -> [B, m]; None for a method without one."""
        return getattr(self, "projector", None)

    def memory(self, examples: int) -> dict[str, Part]:
        """Return the memory that grows with the examples: `head` and its `moments`, if any."""
        return {}


@dataclass(frozen=True, kw_only=True)
class MethodConfig(Settings):
    """Settings of one method; the defaults are those that measured best.

    Example:
        >>> from widefield.methods import SimCLRConfig
        >>> SimCLRConfig(temperature=0.2).changed({"lr": 1e-3}).flat()["temperature"]
        0.2
    """

    name: ClassVar[str]
    """Name of the method on the command line and in `run.yaml`."""
    method_class: ClassVar[type[Any]]
    """Class of the method, of which these are the `config_class`."""
    step_variants: ClassVar[dict[str, dict[str, Any]]] = {}
    """Settings that change the cost of a step, by name; the step benchmark measures them too."""

    # Of 0.002, 0.006 and 0.02 the rate of best class accuracy, for the methods with a study
    # (studies/results/rate-*.cpu.json) that have none of their own.
    lr: Annotated[float, Gt(0)] = 2e-2
    """Peak learning rate of encoder and projector."""

    @classmethod
    def of(cls, config: Self | None, settings: Mapping[str, object]) -> Self:
        """Return `config`, or the defaults, with `settings` in place of single values by flat name.

        Raises:
            ValueError: the config is of another method, or a setting is unknown or out of range.
        """
        config = cls() if config is None else config
        if not isinstance(config, cls):
            raise ValueError(f"config must be a {cls.__name__}, got {config!r}")
        for name in settings:
            check_name(f"setting of {cls.name}", name, config.flat())
        return config.changed(settings)

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return self.method_class(context.feature_dim, self)

    def placed(self, examples: int, feature_dim: int, memory: Memory) -> Self:
        """Return the settings with the storage of the head chosen; D is `feature_dim`."""
        return self
