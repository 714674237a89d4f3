"""Methods with a loss of two views: project both, gather over the processes, compare."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, Unpack

import torch
from torch import Tensor, nn

from widefield.core.gather import gather
from widefield.core.types import Loss
from widefield.methods.base import Method, MethodConfig
from widefield.methods.projector import ProjectorConfig

if TYPE_CHECKING:
    from widefield.methods.arguments import MethodArguments

Compare = Callable[[Tensor, Tensor], Tensor]
"""A loss of two views' projections, [b, m] each."""


@dataclass(frozen=True, kw_only=True)
class ProjectionConfig(MethodConfig):
    """Settings of all methods that compare the projections of a batch."""

    projector: ProjectorConfig = ProjectorConfig(layers=2)
    """The projection head."""
    gather_distributed: bool = False
    """Compute one loss over the examples of all processes."""


@dataclass(frozen=True, kw_only=True)
class PairConfig(ProjectionConfig, ABC):
    """Settings of a loss of two views, which say what the loss is."""

    @abstractmethod
    def pair_loss(self) -> Compare:
        """Return the loss with these settings."""


Config = TypeVar("Config", bound=PairConfig)


class PairLoss(Method):
    """A loss of the projections of two views.

    Args:
        projector: maps h [B, D] to [B, m].
        loss: compares z1 [b, m] with z2 [b, m].
        one_pass: send both views through the encoder together, so that they share the statistics
            of batch normalization; otherwise each view has its own.
        gather_distributed: in several processes, compare the examples of all their batches.

    Example:
        >>> from widefield.methods.simclr import nt_xent
        >>> method = PairLoss(
        ...     projector=nn.Linear(4, 2), loss=lambda a, b: nt_xent(a, b, temperature=0.1)
        ... )
        >>> x = torch.rand(8, 4)
        >>> method(nn.Identity(), [x, x], torch.arange(8)).total.shape
        torch.Size([])
    """

    view_count = 2

    def __init__(
        self,
        *,
        projector: nn.Module,
        loss: Compare,
        one_pass: bool = True,
        gather_distributed: bool = False,
    ) -> None:
        super().__init__()
        self.projector = projector
        self.compare = loss
        self.one_pass = one_pass
        self.gather_distributed = gather_distributed

    def extra_repr(self) -> str:
        settings = getattr(self.compare, "keywords", {})
        name = getattr(getattr(self.compare, "func", self.compare), "__name__", "loss")
        values = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        return f"{super().extra_repr()}, loss={name}({values})"

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        if self.one_pass:
            z1, z2 = self.projector(encoder(torch.cat(views))).chunk(2)
        else:
            z1, z2 = (self.projector(encoder(view)) for view in views)
        if self.gather_distributed:
            z1, z2 = gather(z1), gather(z2)
        return Loss(self.compare(z1, z2))


class PairMethod(PairLoss, Generic[Config]):
    """A loss of two views by its settings alone: a subclass names them as its `config_class`.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        **settings: single settings to replace, by name.

    Example:
        >>> from widefield.methods import SimCLR, SimCLRConfig
        >>> isinstance(SimCLR(8, SimCLRConfig(temperature=0.5)), PairMethod)
        True
    """

    config_class: ClassVar[type[PairConfig]]
    one_pass: bool = True

    def __init__(
        self, encoder_dim: int, config: Config | None = None, **settings: "Unpack[MethodArguments]"
    ) -> None:
        selected = self.config_class.of(config, settings)
        super().__init__(
            projector=selected.projector.build(encoder_dim),
            loss=selected.pair_loss(),
            one_pass=self.one_pass,
            gather_distributed=selected.gather_distributed,
        )
