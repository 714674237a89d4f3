"""Supervised training, the ceiling of the same encoder."""

from dataclasses import dataclass
from typing import ClassVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.core.batch import Shape, check_tensors
from widefield.core.devices import to_device
from widefield.core.precision import at_least_float32
from widefield.core.types import Loss
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import BuildContext, Method, MethodConfig

_NO_LABEL = -1


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig(MethodConfig):
    """Settings of `Supervised`.

    Example:
        >>> SupervisedConfig(lr=1e-3).name
        'supervised'
    """

    name: ClassVar[str] = "supervised"

    def build(self, context: BuildContext) -> Method:
        return Supervised(context.feature_dim, self, labels=context.labels)


class Supervised(Method):
    """Sum over tasks of the cross-entropy of one linear classifier per task: the ceiling.

    Examples without a label of a task, -1, do not count in its cross-entropy.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, which are `lr` alone.
        labels: class ids of every example, task -> int64 [n].
        **settings: single settings to replace, by name.

    Raises:
        ValueError: there are no labels.

    Example:
        >>> import torch
        >>> method = Supervised(3, labels={"color": torch.tensor([0, 1, 0])})
        >>> out = method(torch.nn.Identity(), [torch.rand(2, 3)], torch.tensor([2, 1]))
        >>> sorted(out.parts)
        ['loss_color']
    """

    config_class = SupervisedConfig
    view_count = 1
    needs_labels = True

    def __init__(
        self,
        encoder_dim: int,
        config: SupervisedConfig | None = None,
        *,
        labels: dict[str, Tensor],
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        SupervisedConfig.of(config, settings)
        if not labels:
            raise ValueError(
                "supervised needs labels: give data with first-level subfolders, label arrays "
                "or a planted feature such as +digits"
            )
        self.labels, self.width = labels, encoder_dim
        self.examples = min(map(len, labels.values()))
        # A list: modules cannot have every name that a task can.
        self.classifiers = nn.ModuleList(
            nn.Linear(encoder_dim, int(y.max()) + 1) for y in labels.values()
        )

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        (view,) = views
        h = encoder(view)
        check_tensors({"h": h}, {"h": Shape("b D")}, {"D": self.width})
        parts = {
            f"loss_{task}": _cross_entropy(at_least_float32(classify(h)), y[index])
            for (task, y), classify in zip(self.labels.items(), self.classifiers, strict=True)
        }
        total = torch.stack(list(parts.values())).sum()
        return Loss(total, {task: part.detach() for task, part in parts.items()})


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean over the examples with a label, 0 without any; targets in host memory."""
    count = int((target != _NO_LABEL).sum())
    total = F.cross_entropy(
        logits, to_device(target, logits.device), ignore_index=_NO_LABEL, reduction="sum"
    )
    return total / max(1, count)
