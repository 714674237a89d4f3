"""Builds the state of a training run from a recipe and properties of the data."""

import copy
import os
import shutil
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from widefield.config.defaults import with_balance
from widefield.config.recipe import Recipe
from widefield.core.devices import CPU, eval_mode
from widefield.core.errors import option
from widefield.core.form import InputSpec
from widefield.core.hardware import check_memory, choose_precision
from widefield.core.rng import seeded
from widefield.core.types import WHOLE, Shard, as_size
from widefield.data import Dataset, spectrogram_mean_std, steps_per_epoch
from widefield.encoders import SIGNAL_NETWORKS, Encoder
from widefield.methods.base import BuildContext, Method
from widefield.methods.target import target_networks
from widefield.probes.features import batches
from widefield.train.adversary import build_adversary
from widefield.train.conv_bf16_workaround import zero_padding_gradients
from widefield.train.manifest import Growth
from widefield.train.model import PretrainModel
from widefield.train.optim import build_optimizer, freeze_init, learning_rates
from widefield.train.state import TrainState
from widefield.views.base import Augmentation

# Between the seeds of two ranks: a prime above the steps of most runs, which `rank_seed` adds.
_SEED_STRIDE = 1_000_003
# Chosen by hand: 30 patches of each, and enough for 64 directions.
_FIT_EXAMPLES = 2000
"""Largest number of examples that an encoder is fitted on before its training."""
# 128 MB: 850 color images of 224 pixels.
_FIT_BYTES = 2**27
_FIT_BATCH = 50
# For the learning rate of a step, temporary tensors included.
_STEP_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class DataInfo(InputSpec):
    """Properties of the data that a training run is built from."""

    examples: int
    """n."""
    labels: dict[str, Tensor]
    """Class ids of every example, task -> int64 [n]; empty without labels."""
    spectrogram: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and deviation of the spectrograms of sounds."""
    bits: int = 0
    """Number of the last channels that hold a planted bit, and that no view changes."""
    growth: Growth | None = None
    """When examples were added to the run; None if it has had all from the start."""

    @classmethod
    def of(cls, dataset: Dataset, growth: Growth | None = None) -> "DataInfo":
        first = dataset if growth is None else dataset.subset(slice(0, growth.first))
        mean, std = first.channel_mean_std()
        return cls.of_form(
            dataset.form,
            mean=mean,
            std=std,
            growth=growth,
            examples=len(dataset),
            labels={task: torch.from_numpy(y) for task, y in dataset.labels.items()},
            bits=dataset.bits,
            spectrogram=None if dataset.kind != "sounds" else spectrogram_mean_std(first),
        )


def build(
    recipe: Recipe,
    data: DataInfo,
    *,
    device: torch.device,
    encoder: nn.Module | None = None,
    shard: Shard = WHOLE,
    folder: Path | None = None,
    targets: NDArray[Any] | None = None,
) -> TrainState:
    """Build encoder, method, views, optimizers and learning rates of a training run.

    All weights are drawn from the recipe's seed; the global random state does not change.
    """
    _check_batch_size(recipe, shard, data.examples)
    # The encoder comes first: views of sounds have its front end, and the method its width.
    encoder = build_run_encoder(recipe, data, device) if encoder is None else encoder
    views = recipe.views.build(
        channels=data.channels,
        kept=data.bits,
        seed=recipe.seed,
        kind=data.kind,
        front_end=encoder.config.front_end if isinstance(encoder, Encoder) else None,
    ).to(device)
    # Convolutions are faster with the channels last.
    views.to(memory_format=torch.channels_last)
    encoder.to(device).to(memory_format=torch.channels_last)
    if device.type == "cpu" and choose_precision(recipe.precision, device) == "bf16-mixed":
        zero_padding_gradients(encoder, _blank(data, device))
    _check_lone_examples(recipe, encoder, data, device)
    generator = torch.Generator(device).manual_seed(rank_seed(recipe, shard))
    rates = run_rates(recipe, data.examples, data.growth)
    context = BuildContext(
        encoder=encoder,
        feature_dim=_feature_dim(encoder, data, device),
        examples=data.examples,
        labels=data.labels,
        steps=max(1, len(rates)),  # none where a batch has more examples than there are
        batch_size=recipe.batch_size,
        weight_decay=recipe.weight_decay,
        seed=recipe.seed,
        device=device,
        generator=generator,
        folder=folder,
        shard=shard,
        targets=targets,
    )
    with seeded(recipe.seed):
        method = with_balance(recipe.method, steps=len(rates)).build(context).to(device)
    model = _model(recipe, encoder, method)
    if recipe.sync_batch_norm and shard.world > 1:
        from widefield.train.sync_batch_norm import synchronize_batch_norm  # imports timm

        synchronize_batch_norm(model)
    return TrainState(
        model=model,
        optimizer=build_optimizer(model, recipe),
        views=views,
        adversary=build_adversary(views),
        generator=generator,
        rates=rates,
    )


def _model(recipe: Recipe, encoder: nn.Module, method: Method) -> PretrainModel:
    """Return encoder and method as one module, what the recipe freezes frozen."""
    networks = (encoder, *(target.encoder for target in target_networks(method)))
    return PretrainModel(
        encoder,
        method,
        [norm for network in networks for norm in freeze_init(network, recipe)],
        micro_batch=recipe.micro_batch,
        compile=recipe.compile,
    )


def check_view_policy(views: Augmentation, method: Method, dataset: Dataset, names: str) -> None:
    """Check that the policy `names` of views works with the method and the data of a run."""
    if views.complementary_pairs and method.view_count < 2:
        raise ValueError(
            f"views {names!r} are two halves of an image, and this method takes one view of each: "
            "choose a method of two views, such as simclr, or other views"
        )
    if method.needs_labels and any(overlay.fresh for overlay in dataset.planted):
        raise ValueError(
            f"this method uses labels, and those of planted features in {dataset.spec!r} change at "
            "each read: plant them without ':fresh'"
        )
    if views.needs_mask and not dataset.masks(np.zeros(1, dtype=np.int64)).any():
        raise ValueError(
            f"views {names!r} go by where an object is planted, and there is none in "
            f"{dataset.spec!r}: plant one, as in 'photos+digits', or choose other views"
        )


def check_compile(recipe: Recipe, device: torch.device) -> None:
    """Check that the encoder of a run can be compiled as its settings say."""
    mode = recipe.compile
    if mode == "reduce-overhead" and recipe.micro_batch is not None:
        raise ValueError(
            f"CUDA graphs have the memory of a whole step, and {option('micro_batch')} recomputes "
            f"its parts: choose compile default, or leave {option('micro_batch')} out"
        )
    if mode == "none" or device.type == "cuda":
        return
    if mode == "reduce-overhead":
        raise ValueError(
            "compile reduce-overhead needs a GPU, for CUDA graphs, and this run trains on a CPU: "
            "choose compile default or none"
        )
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise ValueError(
            f"compile {mode} needs a C++ compiler, and {compiler} is not on the path: install it, "
            "name another one by the environment variable CXX, or choose compile none"
        )


def _check_batch_size(recipe: Recipe, shard: Shard, count: int) -> None:
    """Check that a batch has several examples where the method needs them."""
    settings = recipe.method.flat()
    gather = settings.get("gather_distributed")  # None for methods that contrast no examples
    group_size = recipe.batch_size if gather else recipe.batch_size // shard.world
    # A projector of one layer has no batch normalization, and a predictor has two layers.
    layers = 2 if "predictor_width" in settings else settings.get("projector_layers", 0)
    has_batch_norm = layers > 1 and settings.get("projector_batch_norm")
    if group_size > 1 or (gather is None and not has_batch_norm):
        return
    examples = "the examples of a batch"
    does = f"normalizes over {examples}" if gather is None else f"contrasts {examples}"
    needed = 2 * shard.world
    hint = (
        f"choose a {option('batch_size')} of {needed}"
        if count >= needed
        else f"give {needed} examples"
    )
    size_text = f"there would be {group_size} in each process"
    raise ValueError(f"{recipe.method.name} {does}, and {size_text}: {hint} or more")


def _check_lone_examples(
    recipe: Recipe, encoder: nn.Module, data: DataInfo, device: torch.device
) -> None:
    """Check that an encoder that gets its examples one at a time can process them."""
    if 1 not in (recipe.batch_size, recipe.micro_batch):
        return
    name = "batch_size" if recipe.batch_size == 1 else "micro_batch"
    trial = copy.deepcopy(encoder).train()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            trial(_blank(data, device))
    except ValueError as error:
        raise ValueError(
            f"{recipe.encoder.name} normalizes over examples, and {option(name, 1)} gives it one "
            f"at a time: choose a {option(name)} of 2 or more"
        ) from error


def build_run_encoder(recipe: Recipe, data: DataInfo, device: torch.device) -> Encoder:
    """Build a new encoder for the size, channels, mean and deviation of this data."""
    settings = recipe.encoder.resolved(device, data.kind)
    if data.spectrogram is not None and settings.name not in SIGNAL_NETWORKS:
        mean, std = data.spectrogram
        data = replace(data, mean=mean, std=std)
    return settings.build(data, seed=recipe.seed)


def fit_encoder(encoder: Encoder, dataset: Dataset, *, seed: int) -> None:
    """Fit what a new encoder takes from data, on examples that are spread over all of `dataset`."""
    most = min(_FIT_EXAMPLES, max(1, _FIT_BYTES // dataset.images[:1].nbytes))
    images = dataset.subset(dataset.spread_rows(most)).first_read().images
    encoder.fit(lambda: batches(images, _FIT_BATCH, CPU), seed=seed)


def run_rates(recipe: Recipe, examples: int, growth: Growth | None = None) -> Tensor:
    """Return the learning rate of every step of the run, float64 [T]."""
    steps = _steps_of(recipe.epochs, recipe, examples, growth)
    check_memory(_STEP_BYTES * steps, f"a plan of {steps} steps (epochs {recipe.epochs})")
    return learning_rates(
        recipe.method.lr,
        steps=steps,
        warmup_steps=warmup_steps(recipe, examples, growth),
        schedule=recipe.schedule,
    )


def warmup_steps(recipe: Recipe, examples: int, growth: Growth | None = None) -> int:
    """Return the steps of the warm-up, which examples added later do not change."""
    if recipe.warmup_steps is not None:
        return recipe.warmup_steps
    before = None if growth is None else growth.warmup_steps
    if growth is not None and before is not None and before <= growth.step:
        return before
    return _steps_of(warmup_epochs(recipe, growth), recipe, examples, growth)


def warmup_epochs(recipe: Recipe, growth: Growth | None = None) -> float:
    """Return the epochs of the warm-up, which the number of epochs of a resume does not change."""
    recorded = None if growth is None else growth.warmup_epochs
    return min(recipe.warmup_epochs, recipe.epochs / 2) if recorded is None else recorded


def _steps_of(epochs: float, recipe: Recipe, examples: int, growth: Growth | None) -> int:
    """Return the steps of the first `epochs` of a run, which may end before examples joined."""
    per_epoch = partial(steps_per_epoch, batch_size=recipe.batch_size, drop_last=recipe.drop_last)
    if growth is None:
        return round(epochs * per_epoch(examples))
    if epochs < growth.epoch:
        return round(epochs * per_epoch(growth.first))
    return growth.step + round((epochs - growth.epoch) * per_epoch(examples))


def rank_seed(recipe: Recipe, shard: Shard, step: int = 0) -> int:
    """Return the seed of a process's generator, when it begins or at `step`."""
    return recipe.seed + _SEED_STRIDE * shard.rank + step


@torch.no_grad()
def _feature_dim(encoder: nn.Module, data: DataInfo, device: torch.device) -> int:
    """Return D, by a forward pass for modules other than `Encoder`."""
    if isinstance(encoder, Encoder):
        return encoder.dim
    with eval_mode(encoder):
        return int(encoder(_blank(data, device)).shape[1])


def _blank(data: DataInfo, device: torch.device) -> Tensor:
    return torch.zeros(1, data.channels, *as_size(data.image_size), device=device)
