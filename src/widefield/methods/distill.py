"""Distillation: predict the features of frozen teachers, computed once for each example."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from widefield.core.batch import Positive, Rows, check_number, checked
from widefield.core.devices import to_device
from widefield.core.errors import option
from widefield.core.precision import full_precision
from widefield.core.types import Loss
from widefield.head import initial_rows
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import BuildContext, Method, MethodConfig
from widefield.methods.projector import ProjectorConfig


@checked
@full_precision
def feature_cosine(z: Rows, rows: Rows) -> Tensor:
    """Return 1 minus the mean cosine of predictions z [b, m] and teachers' features, rows [b, m].

        loss = 1 - 1/b sum_i z_i . r_i / (|z_i| |r_i|).

    Example:
        >>> import torch
        >>> float(feature_cosine(torch.eye(2), 3 * torch.eye(2)))
        0.0

    Source: AM-RADIO (Ranzinger et al. 2024), section 3, the loss of summary features.
    """
    return 1 - F.cosine_similarity(z, rows, dim=1).mean()


def teacher_rows(features: list[Tensor], *, first: int | None = None) -> Tensor:
    """Return the rows [n, sum D_k] of the features h_k [n, D_k] of K teachers.

        r_i = concatenation over k of (h_ki - mean_k) / (|h_ki - mean_k| sqrt(K)),

    so that each teacher has the same weight in a cosine, whatever its scale. The mean is that of
    the `first` examples, by default of all.
    """
    unit = [F.normalize(h.float() - h[:first].float().mean(0), dim=1) for h in features]
    return torch.cat(unit, dim=1) / len(features) ** 0.5


@dataclass(frozen=True, kw_only=True)
class DistillConfig(MethodConfig):
    """Settings of `Distill`."""

    name: ClassVar[str] = "distill"

    teacher: tuple[str, ...] | None = None
    """Frozen encoders whose features are to be predicted, as for init; several are joined."""
    projector: ProjectorConfig = ProjectorConfig(layers=1)
    """The projection head; with teachers its output width is theirs."""

    def __post_init__(self) -> None:
        """Check every field; one teacher may be a string."""
        if isinstance(self.teacher, str | list):
            teacher = (self.teacher,) if isinstance(self.teacher, str) else tuple(self.teacher)
            object.__setattr__(self, "teacher", teacher)
        super().__post_init__()

    def build(self, context: BuildContext) -> Method:
        return Distill(
            context.feature_dim, self, examples=context.examples, targets=context.targets
        )


class Distill(Method):
    """Cosine between a projection of one view and the example's row, its teachers' features.

    A row is computed once, from the example without augmentation, and is not trained; a step costs
    what the encoder costs. With the one linear layer of the default projector, the features have to
    predict the teachers' linearly, so that a linear probe finds in them what it finds there.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        targets: rows [n, m], such as `teacher_rows`, or a file of them that numpy mapped; without
            them a random row for each example, as in Noise As Targets (Bojanowski & Joulin 2017).
        **settings: single settings to replace, by name.

    Raises:
        ValueError: there are not as many targets as examples, or a setting cannot work.

    Example:
        >>> encoder, teacher = torch.nn.Flatten(), torch.nn.Linear(8, 5)
        >>> x = torch.rand(4, 1, 2, 4)
        >>> rows = teacher_rows([teacher(x.flatten(1)).detach()])
        >>> method = Distill(8, examples=4, targets=rows.numpy())
        >>> method(encoder, [x], torch.arange(4)).total.shape
        torch.Size([])

    Source: AM-RADIO (Ranzinger et al. 2024); a row for each example as in S-DIET (2025), section 5.
    """

    config_class = DistillConfig
    view_count = 1

    def __init__(
        self,
        encoder_dim: int,
        config: DistillConfig | None = None,
        *,
        examples: int,
        targets: NDArray[Any] | None = None,
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        config = DistillConfig.of(config, settings)
        check_number("examples", Positive, examples)
        if targets is not None and len(targets) != examples:
            raise ValueError(f"there are {len(targets)} targets for {examples} examples: give all")
        self.examples = examples
        self._targets = targets
        shape = config.projector
        if targets is not None:
            shape = replace(shape, dim=targets.shape[1])
        self.projector = shape.build(encoder_dim)
        self.dim = shape.out_dim(encoder_dim)
        if targets is not None and targets.shape[1] != self.dim:
            raise ValueError(
                f"the teachers have {targets.shape[1]} features and the encoder {self.dim}: give "
                f"{option('projector_layers')} of 1 or more"
            )

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        (view,) = views
        z = self.projector(encoder(view))
        return Loss(feature_cosine(z, to_device(self.rows(index), z.device).to(z.dtype)))

    def rows(self, index: Tensor) -> Tensor:
        """Return the rows [b, m] of the examples `index` [b]."""
        if self._targets is None:
            return initial_rows(index, self.dim, seed=0, dtype=torch.float32)
        return torch.from_numpy(self._targets[index.cpu().numpy()])
