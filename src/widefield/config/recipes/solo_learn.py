"""The published CIFAR settings of solo-learn, the baselines of S-DIET (2025), appendix C.1."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from widefield.config.recipe import Recipe
from widefield.encoders import EncoderSettings
from widefield.methods import (
    BarlowTwinsConfig,
    BYOLConfig,
    MethodConfig,
    MoCoConfig,
    ProjectorConfig,
    SimCLRConfig,
    SimSiamConfig,
    VICRegConfig,
)


@dataclass(frozen=True, kw_only=True)
class _Baseline:
    """Settings of one method."""

    settings: Callable[[], MethodConfig]
    weight_decay: float
    optimizer: str = "lars"


def _mlp(layers: int, width: int, dim: int, *, batch_norm: bool = True) -> ProjectorConfig:
    return ProjectorConfig(layers=layers, width=width, dim=dim, batch_norm=batch_norm)


BASELINES: dict[str, _Baseline] = {
    SimCLRConfig.name: _Baseline(
        settings=lambda: SimCLRConfig(
            lr=0.4, projector=_mlp(2, 2048, 256, batch_norm=False), temperature=0.2
        ),
        weight_decay=1e-4,
    ),
    BarlowTwinsConfig.name: _Baseline(
        settings=lambda: BarlowTwinsConfig(
            lr=0.3, projector=_mlp(3, 2048, 2048), off_diagonal_weight=0.0051
        ),
        weight_decay=1e-4,
    ),
    BYOLConfig.name: _Baseline(
        settings=lambda: BYOLConfig(
            lr=1.0,
            projector=_mlp(2, 4096, 256),
            predictor_width=4096,
            ema_decay=0.99,
            directions="both",
        ),
        weight_decay=1e-5,
    ),
    SimSiamConfig.name: _Baseline(
        settings=lambda: SimSiamConfig(lr=0.5, projector=_mlp(3, 2048, 2048), predictor_width=512),
        weight_decay=1e-5,
        optimizer="sgd",
    ),
    VICRegConfig.name: _Baseline(
        settings=lambda: VICRegConfig(
            lr=0.3,
            projector=_mlp(3, 2048, 2048),
            invariance_weight=25.0,
            variance_weight=25.0,
            cov_weight=1.0,
        ),
        weight_decay=1e-4,
    ),
    MoCoConfig.name: _Baseline(
        settings=lambda: MoCoConfig(
            lr=0.3,
            projector=_mlp(2, 2048, 256, batch_norm=False),
            temperature=0.2,
            ema_decay=0.99,
            queue_size=32768,
        ),
        weight_decay=1e-4,
        optimizer="sgd",
    ),
}
"""Method -> its settings."""


def solo_learn(method: str = "simclr", planted: Collection[str] = ()) -> Recipe:
    """Return solo-learn's CIFAR recipe of a method, with S-DIET's views and float32.

    Raises:
        ValueError: solo-learn's settings are not here for this method.

    Source: solo-learn, the files of `scripts/pretrain/cifar`; views, batch size and precision of
    S-DIET (2025), appendix C.1.
    """
    if method not in BASELINES:
        *others, last = BASELINES
        raise ValueError(
            f"the recipe solo-learn has no settings for {method}: "
            f"it is for {', '.join(others)} and {last}"
        )
    baseline = BASELINES[method]
    run: dict[str, Any] = {"optimizer": baseline.optimizer}
    return Recipe(
        method=baseline.settings(),
        encoder=EncoderSettings(name="resnet18", stem="cifar", zero_init_last=False),
        epochs=1000,
        weight_decay=baseline.weight_decay,
        # LARS leaves biases and gains alone, as its `exclude_bias_n_norm` does.
        decay_bias_and_norm=baseline.optimizer == "sgd",
        warmup_epochs=10.0,
        precision="32",
        **run,
    )
