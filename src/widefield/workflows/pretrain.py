"""Pretrain an encoder on unlabelled data, in a folder that can be resumed."""

import datetime
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

import widefield
from widefield.data import Dataset, Loader, absolute, open_dataset
from widefield.diagnose import Health, health
from widefield.encoders import Encoder, build_encoder, save_encoder
from widefield.methods import METHODS, RunFacts, build_method
from widefield.methods.s_diet import recipe_layout
from widefield.probes import extract
from widefield.recipe import Recipe, check_name
from widefield.rows import FolderLock, choose_place
from widefield.train.checkpoint import full_disk_as_one_line, load_together, save_together
from widefield.train.folder import RunFolder, recipe_settings
from widefield.train.hardware import choose_device, choose_precision, keep_freed_memory, machine
from widefield.train.interrupt import Stop, StopRequest
from widefield.train.loop import Objective, Pulse, Training, train
from widefield.train.opponent import build_opponent, opponent_facts, refuse_misfit
from widefield.train.optim import build_optimizer, learning_rates
from widefield.train.progress import MetricsLog, ProgressBar
from widefield.train.ranks import Ranks
from widefield.views import build_views
from widefield.workflows.summary import run_report

HEALTH_EXAMPLES = 512

_SEEDS_APART = 1_000_003  # from one rank to the next: farther than anybody's seeds

Data = str | Path | np.ndarray | Tensor | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """What a pretraining run left."""

    run: Path
    """Folder of the run."""
    encoder: Encoder
    steps: int
    """Optimiser steps since the run began, over all resumes."""
    images_per_second: float
    """Examples per second of this call, views and logging included."""
    data_wait: float
    """Share of this call's training time spent waiting for data."""
    health: Health
    finished: bool
    """False when it was asked to stop; `resume=True` goes on."""


def pretrain(
    data: Data,
    *,
    out: str | Path,
    recipe: str | Recipe = "default",
    resume: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Pretrained:
    """Train an encoder without labels and leave it in the folder `out`.

    Args:
        data: a data spec such as "photos+digits" or "./my-images", or images as an array
            [n, H, W, C], uint8 or floats in [0, 1].
        out: folder of the run; must not hold another one.
        recipe: name of a recipe, or a whole one.
        resume: go on with the run in `out`, with its own settings; any number of processes may.
        quiet: show no progress.
        **settings: fields of `Recipe` to change.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = pretrain("photos", out=folder, epochs=1, limit=64, batch_size=32, quiet=True)
        >>> done.steps
        2
    """
    folder = RunFolder(path=Path(out))
    chosen = _recipe_to_resume(folder, settings) if resume else resolve(recipe, settings)
    device = choose_device(chosen.device)
    ranks = Ranks(device, choose_precision(chosen.precision, device))
    console = Console(stderr=True, quiet=quiet or not ranks.first)
    begun = resume and folder.last_checkpoint.exists()  # else it died before its first checkpoint
    if ranks.first and not resume:
        folder.refuse_if_taken()
    dataset = open_data(data, chosen)
    for note in dataset.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if not resume:
        chosen = place_rows(chosen, len(dataset))
    with (
        full_disk_as_one_line(folder.path),
        ranks.lost_as_one_line(),
        _claimed(folder, ranks),
        torch.random.fork_rng(enabled=True),
    ):
        torch.manual_seed(chosen.seed)
        chosen = ranks.of_first(chosen)
        with closing(Session(chosen, dataset, folder, console, ranks)) as session:
            if begun:
                folder.refuse_other_data(dataset)
                session.resume()
            else:
                ranks.by_first(lambda: folder.begin(_describe(chosen, data, dataset), dataset))
            return session.run()


@contextmanager
def _claimed(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Let the first rank make and lock the folder; the others wait for that."""
    with ExitStack() as stack:
        if ranks.first:
            stack.enter_context(folder.claimed())
            stack.enter_context(FolderLock(folder.path))
        ranks.wait()
        yield


def resolve(recipe: str | Recipe, settings: dict[str, Any]) -> Recipe:
    """Check every name, and replace `auto` by what this machine gets, so that a resume agrees."""
    if isinstance(recipe, Recipe):
        recipe = replace(recipe, **settings)
    else:
        recipe = Recipe.named(recipe, **settings)
    check_name("method", recipe.method, tuple(METHODS))
    build_views(recipe.views, recipe=recipe)
    device = choose_device(recipe.device)
    encoder = recipe.encoder
    if encoder == "auto":
        encoder = "resnet18" if device.type == "cuda" else "resnet-tiny"
    bf16 = choose_precision(recipe.precision, device) == "bf16-mixed"
    return replace(recipe, encoder=encoder, precision="bf16" if bf16 else "32")


def open_data(data: Data, recipe: Recipe) -> Dataset:
    """The examples that `recipe` asks for."""
    return open_dataset(data, limit=recipe.limit, image_size=recipe.image_size, seed=recipe.seed)


def place_rows(recipe: Recipe, examples: int) -> Recipe:
    """`recipe` with the place where rows of so many examples live on this machine."""
    place = choose_place(
        recipe.row_store,
        examples,
        recipe.projector_dim,
        choose_device(recipe.device),
        recipe_layout(recipe),
    )
    return replace(recipe, row_store=place)


def _recipe_to_resume(folder: RunFolder, settings: dict[str, Any]) -> Recipe:
    """The run's own recipe; settings given again must agree with it."""
    own = folder.recipe()
    for name, value in settings.items():
        if getattr(own, name, value) != value:
            raise ValueError(
                f"the run in {folder.path} has {name} {getattr(own, name)!r}, not {value!r}: "
                f"resume without {name}, or start a new run with another --out"
            )
    return own


def _describe(recipe: Recipe, data: Data, dataset: Dataset) -> dict[str, Any]:
    return {
        "widefield": widefield.__version__,
        "data": absolute(dataset.spec) if isinstance(data, str | Path) else dataset.spec,
        "examples": len(dataset),
        "tasks": {task: list(names) for task, names in dataset.classes.items()},
        "recipe": recipe_settings(recipe),
        "machine": machine(choose_device(recipe.device)),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


class Session:
    """One call of `pretrain`: builds the players, trains, and writes what there is to write."""

    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        folder: RunFolder,
        console: Console,
        ranks: Ranks,
    ) -> None:
        self.recipe, self.dataset, self.folder, self.console = recipe, dataset, folder, console
        self.ranks = ranks
        self.device = ranks.fabric.device
        keep_freed_memory()
        channels = dataset.images.shape[3]
        views = build_views(recipe.views, recipe=recipe, channels=channels).to(self.device)
        views.to(memory_format=torch.channels_last)
        refuse_misfit(recipe, views, METHODS[recipe.method], dataset)
        self.loader = Loader(
            dataset,
            batch_size=recipe.batch_size,
            device=self.device,
            seed=recipe.seed,
            shard=ranks.shard,
            masks=views.needs_mask,
        )
        per_epoch = self.loader.steps_per_epoch
        self.total_steps = recipe.epochs * per_epoch
        self.rates = learning_rates(
            recipe.lr,
            steps=self.total_steps,
            warmup_steps=round(min(recipe.warmup_epochs, recipe.epochs / 2) * per_epoch),
            schedule=recipe.schedule,
        )
        self.encoder = build_run_encoder(recipe, dataset).to(self.device)
        self.encoder.to(memory_format=torch.channels_last)
        facts = RunFacts(
            encoder=self.encoder,
            feature_dim=self.encoder.dim,
            examples=len(dataset),
            labels={task: torch.from_numpy(y) for task, y in dataset.labels.items()},
            learning_rates=self.rates,
            device=self.device,
            folder=folder.rows_folder,
            shard=ranks.shard,
        )
        method = build_method(recipe, facts).to(self.device)
        generator = torch.Generator(self.device)
        generator.manual_seed(recipe.seed + _SEEDS_APART * ranks.shard.rank)
        self.training = Training(
            objective=Objective(self.encoder, method),
            optimizer=build_optimizer(self.encoder, method, recipe),
            views=views,
            opponent=build_opponent(views, recipe),
            generator=generator,
        )
        self.images, self.seconds = 0, 0.0
        self.health: Health | None = None

    def resume(self) -> None:
        """Go on from the last checkpoint."""
        ranks, training = self.ranks, self.training
        state = load_together(self.folder.last_checkpoint, ranks.shard)
        training.load_state_dict(state)
        if state["world"] != ranks.shard.world:
            # New ranks have no random state of their own: all begin anew, each with its own seed.
            training.generator.manual_seed(
                self.recipe.seed + _SEEDS_APART * ranks.shard.rank + training.step
            )
            self._checkpoint()
        self.console.print(
            f"resuming {self.folder.path} after epoch {self.training.epoch}"
            f" of {self.recipe.epochs}",
            highlight=False,
        )

    def run(self) -> Pretrained:
        """Train to the end, or until asked to stop."""
        if self.ranks.first:
            self.log = MetricsLog(self.folder.path, epoch=self.training.epoch)
        self.bar = ProgressBar(
            self.console,
            epochs=self.recipe.epochs,
            total_steps=self.total_steps,
            done=self.training.step,
        )
        finished = True
        with StopRequest() as self.request, self.bar:
            try:
                train(
                    self.training,
                    fabric=self.ranks.fabric,
                    loader=self.loader,
                    rates=self.rates,
                    epochs=self.recipe.epochs,
                    on_step=self._on_step,
                    on_epoch=self._on_epoch,
                )
            except Stop:
                finished = False
                self._checkpoint()
            finally:
                if self.ranks.first:
                    self.log.close()
        self.encoder.eval()
        if self.ranks.first:
            save_encoder(self.encoder, self.folder.path)
            if finished:
                self._report()
        return Pretrained(
            run=self.folder.path,
            encoder=self.encoder,
            steps=self.training.step,
            images_per_second=self.images / max(self.seconds, 1e-9),
            data_wait=self.loader.wait_seconds / max(self.seconds, 1e-9),
            health=self._last_health(),
            finished=finished,
        )

    def _on_step(self, pulse: Pulse) -> None:
        self.bar.step(pulse)
        if self.ranks.any(self.request.asked):
            raise Stop

    def _on_epoch(self, pulse: Pulse) -> None:
        recipe, epoch = self.recipe, self.training.epoch
        self.images, self.seconds = self.images + pulse.images, self.seconds + pulse.seconds
        last = epoch == recipe.epochs
        values: dict[str, float | str] = {
            "step": float(pulse.step),
            **self.ranks.mean(pulse.means()),
            "lr": pulse.lr,
            **opponent_facts(self.training.opponent),
            "images_per_second": pulse.images / pulse.seconds,
            "data_wait": pulse.data_wait,
        }
        if self.ranks.first and (last or epoch % recipe.health_every == 0):
            self.health = self.check_health()
            values |= {
                "effective_rank": self.health.effective_rank,
                "large_singular_values": float(self.health.large_singular_values),
                "feature_std": self.health.feature_std,
                "verdict": self.health.verdict,
            }
            self.bar.say(f"epoch {epoch}: {self.health.line()}")
            if self.health.advice:
                self.bar.say(f"  try: {self.health.advice}")
        if self.ranks.first:
            self.log.add(epoch, values)
        if last or epoch % recipe.checkpoint_every == 0:
            self._checkpoint()
            if self.ranks.first:
                save_encoder(self.encoder, self.folder.encoder_at(epoch))

    def _report(self) -> None:
        page = run_report(
            self.folder,
            self.dataset,
            title=f"{self.recipe.method} on {self.dataset.spec}",
            summary=f"The encoder is trained. Its features are {self._last_health().line()}.",
            next_steps=(
                f"`widefield probe {self.folder.path}` scores what can be read off the features",
                f"`widefield embed {self.folder.path} DATA --out features.npz` takes them away",
            ),
        )
        page.write(self.folder.path / "report.html", overwrite=True)

    def _last_health(self) -> Health:
        return self.health or self.check_health()

    def check_health(self) -> Health:
        """Label-free health of the encoder as it is now, on the first examples."""
        some = self.dataset.images[:HEALTH_EXAMPLES]
        return health(extract(self.encoder, some, device=self.device))

    def _checkpoint(self) -> None:
        save_together(self.folder.last_checkpoint, self.training.state_dict(), self.ranks)
        self.training.objective.method.after_checkpoint()

    def close(self) -> None:
        """Let go of the method's files, whether the run ended well or not."""
        self.training.objective.method.close()


def build_run_encoder(recipe: Recipe, dataset: Dataset) -> Encoder:
    """A fresh encoder for this data: its size, its channels, its mean and deviation."""
    mean, std = dataset.channel_mean_std()
    return build_encoder(
        recipe.encoder,
        channels=dataset.images.shape[3],
        image_size=dataset.images.shape[1],
        mean=mean,
        std=std,
        seed=recipe.seed,
    )
