"""Builds the state of a training from a recipe and facts about the data; every caller uses it."""

import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from widefield.config.defaults import balanced
from widefield.config.recipe import Recipe
from widefield.core.hardware import choose_precision
from widefield.core.memory import check_memory
from widefield.core.modes import eval_mode
from widefield.core.rng import seeded
from widefield.core.types import WHOLE, InputSpec, Kind, Shard, as_size
from widefield.data import Dataset, spectrogram_mean_std, steps_per_epoch
from widefield.encoders import SIGNAL_NETWORKS, Encoder
from widefield.methods.base import BuildContext, Method
from widefield.methods.target import target_networks
from widefield.train.adversary import build_adversary
from widefield.train.conv_bf16_workaround import clear_unseen_taps
from widefield.train.manifest import Growth
from widefield.train.optim import build_optimizer, freeze_start, learning_rates
from widefield.train.state import PretrainModel, TrainState
from widefield.views.base import Augmentation

_SEEDS_APART = 1_000_003  # from one rank to the next: farther than anybody's seeds
_STEP_BYTES = 32  # of a step's learning rate, with what it is computed from


@dataclass(frozen=True, kw_only=True)
class DataFacts(InputSpec):
    """What a training needs to know of its data beside the batches."""

    examples: int
    """n."""
    labels: dict[str, Tensor]
    """Class ids of every example, task -> int64 [n]; empty without labels."""
    kind: Kind = "images"
    """What the examples are."""
    spectrogram: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Mean and deviation of the spectrograms of sounds."""
    growth: Growth | None = None
    """Since when the run has these examples; None if since its beginning."""

    @classmethod
    def of(cls, dataset: Dataset, growth: Growth | None = None) -> "DataFacts":
        """Return the facts of a data set; the statistics are of those that a run began with."""
        first = dataset if growth is None else dataset.subset(slice(0, growth.first))
        mean, std = first.channel_mean_std()
        return cls(
            growth=growth,
            examples=len(dataset),
            image_size=dataset.images.shape[1:3],
            channels=dataset.images.shape[3],
            labels={task: torch.from_numpy(y) for task, y in dataset.labels.items()},
            mean=tuple(mean),
            std=tuple(std),
            max_value=dataset.max_value,
            kind=dataset.kind,
            rate=dataset.rate,
            spectrogram=None if dataset.kind != "sounds" else spectrogram_mean_std(first),
        )


def build(
    recipe: Recipe,
    data: DataFacts,
    *,
    device: torch.device,
    encoder: nn.Module | None = None,
    shard: Shard = WHOLE,
    folder: Path | None = None,
) -> TrainState:
    """Build encoder, method, views, optimizers and learning rates of a training.

    All weights are drawn from the recipe's seed; the global random state is left alone.

    Args:
        recipe: the settings, `auto` replaced or not.
        data: facts about the examples.
        device: where to train.
        encoder: an encoder to train instead of a fresh one.
        shard: which examples this process trains on.
        folder: where a method may keep files of the run.

    Raises:
        ValueError: settings, views and data that cannot work together.

    Example:
        >>> from widefield.methods import METHODS
        >>> labels = {"class": torch.arange(64) % 2}
        >>> facts = DataFacts(examples=64, image_size=16, labels=labels)
        >>> recipe = Recipe(method=METHODS["simclr"](), epochs=2, batch_size=32)
        >>> state = build(recipe, facts, device=torch.device("cpu"))
        >>> len(state.rates)
        4
    """
    _refuse_lone_examples(recipe, shard)
    encoder = build_run_encoder(recipe, data, device) if encoder is None else encoder
    views = recipe.views.build(
        channels=data.channels,
        seed=recipe.seed,
        kind=data.kind,
        front_end=encoder.config.front_end if isinstance(encoder, Encoder) else None,
    ).to(device)
    views.to(memory_format=torch.channels_last)
    encoder.to(device).to(memory_format=torch.channels_last)
    if device.type == "cpu" and choose_precision(recipe.precision, device) == "bf16-mixed":
        clear_unseen_taps(encoder, _blank(data, device))
    _refuse_lone_parts(recipe, encoder, data, device)
    generator = torch.Generator(device).manual_seed(rank_seed(recipe, shard))
    rates = run_rates(recipe, data.examples, data.growth)
    context = BuildContext(
        encoder=encoder,
        feature_dim=_feature_dim(encoder, data, device),
        examples=data.examples,
        labels=data.labels,
        steps=len(rates),
        batch_size=recipe.batch_size,
        weight_decay=recipe.weight_decay,
        seed=recipe.seed,
        device=device,
        generator=generator,
        folder=folder,
        shard=shard,
    )
    with seeded(recipe.seed):
        method = balanced(recipe.method, steps=len(rates)).build(context).to(device)
    copies = [target.encoder for target in target_networks(method)]
    still = [norm for network in (encoder, *copies) for norm in freeze_start(network, recipe)]
    model = PretrainModel(encoder, method, still, micro_batch=recipe.micro_batch)
    return TrainState(
        model=model,
        optimizer=build_optimizer(model, recipe),
        views=views,
        adversary=build_adversary(views),
        generator=generator,
        rates=rates,
    )


def refuse_misfit(views: Augmentation, method: Method, dataset: Dataset, names: str) -> None:
    """Refuse views that cannot do, for this method or on this data, what they are there for.

    Args:
        views: the policy.
        method: the method of the run.
        dataset: the data of the run.
        names: what the policy is called.

    Raises:
        ValueError: in one line, why not, and what to do.
    """
    if views.complementary_pairs and method.view_count < 2:
        raise ValueError(
            f"views {names!r} are two halves of an image, and this method takes one view of each: "
            "choose a method that compares two, such as simclr, or other views"
        )
    if method.needs_labels and any(overlay.fresh for overlay in dataset.planted):
        raise ValueError(
            f"this method is told each example's labels, and in {dataset.spec!r} those of what is "
            "planted change at each read: plant it without ':fresh'"
        )
    if views.needs_mask and not dataset.masks(np.zeros(1, dtype=np.int64)).any():
        raise ValueError(
            f"views {names!r} go by where an object is planted, and there is none in "
            f"{dataset.spec!r}: plant one, as in 'photos+digits', or choose other views"
        )


def _refuse_lone_examples(recipe: Recipe, shard: Shard) -> None:
    """Refuse batches of one where a method needs several examples.

    Raises:
        ValueError: there is nothing to tell apart, or to normalize over.
    """
    settings = recipe.method.flat()
    gather = settings.get("gather_distributed")  # None: a method that compares no examples
    together = recipe.batch_size if gather else recipe.batch_size // shard.world
    if together > 1 or (gather is None and not settings.get("projector_batch_norm")):
        return
    examples = "the examples of a batch"
    does = f"normalizes over {examples}" if gather is None else f"tells {examples} apart"
    raise ValueError(
        f"{recipe.method.name} {does}, and there would be "
        f"{together} in each process: choose a batch_size of {2 * shard.world} or more"
    )


def _refuse_lone_parts(
    recipe: Recipe, encoder: nn.Module, data: DataFacts, device: torch.device
) -> None:
    """Refuse parts of one example where batch normalization has one number of a channel then.

    Raises:
        ValueError: it has.
    """
    if recipe.micro_batch != 1:
        return
    trial = copy.deepcopy(encoder).train()
    try:
        with torch.no_grad(), torch.random.fork_rng():
            trial(_blank(data, device))
    except ValueError as error:
        raise ValueError(
            f"{recipe.encoder.name} normalizes over examples, and micro_batch 1 gives it one at a "
            "time: choose a micro_batch of 2 or more"
        ) from error


def build_run_encoder(recipe: Recipe, data: DataFacts, device: torch.device) -> Encoder:
    """Build a fresh encoder for this data: its size, its channels, its mean and deviation."""
    settings = recipe.encoder.resolved(device, data.kind)
    if data.spectrogram is not None and settings.name not in SIGNAL_NETWORKS:
        mean, std = data.spectrogram
        data = replace(data, mean=mean, std=std)
    return settings.build(data, seed=recipe.seed)


def run_rates(recipe: Recipe, examples: int, growth: Growth | None = None) -> Tensor:
    """Return the learning rate of every step of the run, float64 [T].

    Where examples joined, the steps until then count as they were taken.
    """
    steps = _steps_of(recipe.epochs, recipe, examples, growth)
    check_memory(_STEP_BYTES * steps, f"a plan of {steps} steps (epochs {recipe.epochs})")
    return learning_rates(
        recipe.method.lr,
        steps=steps,
        warmup_steps=warmup_steps(recipe, examples, growth),
        schedule=recipe.schedule,
    )


def warmup_steps(recipe: Recipe, examples: int, growth: Growth | None = None) -> int:
    """Return the steps of the warm-up; examples that joined after it leave it as it was."""
    if recipe.warmup_steps is not None:
        return recipe.warmup_steps
    before = None if growth is None else growth.warmup_steps
    if growth is not None and before is not None and before <= growth.step:
        return before
    return _steps_of(min(recipe.warmup_epochs, recipe.epochs / 2), recipe, examples, growth)


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
    return recipe.seed + _SEEDS_APART * shard.rank + step


@torch.no_grad()
def _feature_dim(encoder: nn.Module, data: DataFacts, device: torch.device) -> int:
    """Return D: what our encoders say, or what another one makes of an image."""
    if isinstance(encoder, Encoder):
        return encoder.dim
    with eval_mode(encoder):
        return int(encoder(_blank(data, device)).shape[1])


def _blank(data: DataFacts, device: torch.device) -> Tensor:
    return torch.zeros(1, data.channels, *as_size(data.image_size), device=device)
