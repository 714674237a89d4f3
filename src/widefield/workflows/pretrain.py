"""Pretrain an encoder on unlabelled data, in a folder that can be resumed."""

import datetime
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from widefield.arguments import RecipeArguments
from widefield.core.names import printable
from widefield.data import Dataset, Loader, absolute, open_dataset
from widefield.diagnose import Health, health
from widefield.encoders import Encoder, save_encoder
from widefield.methods import Projector, save_projector
from widefield.probes import extract
from widefield.recipe import Recipe
from widefield.recipes import make_recipe
from widefield.rows import FolderLock
from widefield.train.adversary import adversary_facts, refuse_misfit
from widefield.train.build import DataFacts, build, rank_seed
from widefield.train.checkpoint import full_disk_as_one_line, load_together, save_together
from widefield.train.folder import FORMAT, RunFolder
from widefield.train.hardware import choose_device, choose_precision, machine
from widefield.train.interrupt import Stop, StopRequest
from widefield.train.progress import MetricsLog, ProgressBar, reading_bar
from widefield.train.ranks import Ranks
from widefield.train.step import StepMetrics
from widefield.train.trainer import Trainer
from widefield.version import __version__
from widefield.workflows.summary import run_report

HEALTH_EXAMPLES = 512

Data = str | Path | np.ndarray | Tensor | Mapping[str, Any]
OnStep = Callable[[StepMetrics], None]


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
    on_step: OnStep | None = None,
    on_epoch: OnStep | None = None,
    **settings: Unpack[RecipeArguments],
) -> Pretrained:
    """Train an encoder without labels and leave it in the folder `out`.

    Ctrl-C and SIGTERM are held back until the step under way is done and the run is saved. Then
    they do what they would have done: Ctrl-C raises KeyboardInterrupt.

    Args:
        data: a data spec such as "photos+digits" or "./my-images", or images as an array
            [n, H, W, C], uint8 or floats in [0, 1].
        out: folder of the run; must not hold another one.
        recipe: name of a recipe, or a whole one.
        resume: go on with the run in `out`, with its own settings; any number of processes may.
            Another number of `epochs` may be given.
        quiet: show no progress.
        on_step: called after every step; what it raises ends the run, without a checkpoint.
        on_epoch: called after every epoch, once its checkpoint is saved.
        **settings: settings of the run, its method and its views to change.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.
        KeyboardInterrupt: Ctrl-C, after the run was saved.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done = pretrain("photos", out=folder, epochs=1, limit=64, batch_size=32, quiet=True)
        >>> done.steps
        2
    """
    folder = RunFolder(path=Path(out))
    chosen = _recipe_to_resume(folder, settings) if resume else resolve(recipe, settings, data)
    device = choose_device(chosen.device)
    ranks = Ranks(device, choose_precision(chosen.precision, device))
    console = Console(stderr=True, quiet=quiet or not ranks.is_rank_zero)
    has_begun = resume and folder.last_checkpoint.exists()  # else it died before its first one
    if ranks.is_rank_zero and not resume:
        folder.refuse_if_taken()
    with reading_bar(console) as progress:
        dataset = open_data(data, chosen, progress)
    for note in (*dataset.notes, dataset.place):
        console.print(printable(note), highlight=False, markup=False, soft_wrap=True)
    if not resume:
        chosen = resolve_method(chosen, dataset)
    with (
        full_disk_as_one_line(folder.path),
        ranks.lost_as_one_line(),
        _claimed(folder, ranks),
        torch.random.fork_rng(enabled=True),
    ):
        torch.manual_seed(chosen.seed)
        chosen = ranks.broadcast(chosen)
        with closing(PretrainRun(chosen, dataset, folder, console, ranks)) as run:
            if has_begun:
                folder.refuse_other_data(dataset)
                run.resume()
                ranks.on_rank_zero(lambda: folder.keep_epochs(chosen.epochs))
            else:
                ranks.on_rank_zero(lambda: folder.begin(_describe(chosen, data, dataset), dataset))
            done = run.train(on_step=on_step, on_epoch=on_epoch)
    run.request.deliver(run.stopped_by)
    return done


@contextmanager
def _claimed(folder: RunFolder, ranks: Ranks) -> Iterator[None]:
    """Let the first rank make and lock the folder; the others wait for that."""
    with ExitStack() as stack:
        if ranks.is_rank_zero:
            stack.enter_context(folder.claimed())
            stack.enter_context(FolderLock(folder.path))
        ranks.barrier()
        yield


def resolve(recipe: str | Recipe, settings: Mapping[str, Any], data: Data) -> Recipe:
    """Return the recipe for `data` with `settings`, `auto` replaced by what this machine gets.

    So a resume on the same machine agrees with the run.
    """
    if isinstance(recipe, Recipe):
        recipe = recipe.changed(settings)
    else:
        spec = str(data) if isinstance(data, str | Path) else ""
        recipe = make_recipe(recipe, data=spec, **settings)
    device = choose_device(recipe.device)
    encoder = recipe.encoder.resolved(device)
    bf16 = choose_precision(recipe.precision, device) == "bf16-mixed"
    return replace(recipe, encoder=encoder, precision="bf16" if bf16 else "32")


def resolve_method(recipe: Recipe, dataset: Dataset) -> Recipe:
    """Return a resolved recipe with the settings that its method leaves to data and machine."""
    _, height, width, channels = dataset.images.shape
    feature_dim = recipe.encoder.width(channels=channels, image_size=(height, width))
    device = choose_device(recipe.device)
    return replace(recipe, method=recipe.method.resolved(len(dataset), feature_dim, device))


def open_data(
    data: Data, recipe: Recipe, progress: Callable[[int, int], None] | None = None
) -> Dataset:
    """Return the examples that `recipe` asks for; `progress` gets (done, total) while decoding."""
    return open_dataset(
        data,
        limit=recipe.limit,
        image_size=recipe.image_size,
        seed=recipe.seed,
        progress=progress,
    )


def _recipe_to_resume(folder: RunFolder, settings: Mapping[str, Any]) -> Recipe:
    """Return the run's own recipe, with more or fewer epochs where these were given.

    Raises:
        ValueError: another setting was given and disagrees.
    """
    recipe = folder.recipe()
    changed = recipe.changed(settings)
    before, after = recipe.flat(), changed.flat()
    for name in settings:
        if name != "epochs" and before.get(name) != after[name]:
            raise ValueError(
                f"the run in {folder.path} has {name} {before.get(name)!r}, not {after[name]!r}: "
                f"resume without {name}, or start a new run with another --out"
            )
    # Not `changed`: there the name of a method or of views has brought its defaults along.
    return replace(recipe, epochs=changed.epochs)


def _describe(recipe: Recipe, data: Data, dataset: Dataset) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "widefield": __version__,
        "data": absolute(dataset.spec) if isinstance(data, str | Path) else dataset.spec,
        "examples": len(dataset),
        "tasks": {task: list(names) for task, names in dataset.classes.items()},
        "recipe": recipe.to_dict(),
        "machine": machine(choose_device(recipe.device)),
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


class PretrainRun:
    """One call of `pretrain`: trains, and writes what there is to write."""

    def __init__(
        self, recipe: Recipe, dataset: Dataset, folder: RunFolder, console: Console, ranks: Ranks
    ) -> None:
        self.recipe, self.dataset, self.folder = recipe, dataset, folder
        self.console, self.ranks = console, ranks
        device, shard = ranks.fabric.device, ranks.shard
        facts, rows = DataFacts.of(dataset), folder.rows_folder
        self.state = build(recipe, facts, device=device, shard=shard, folder=rows)
        refuse_misfit(self.state.views, self.state.method, dataset, recipe.views.names)
        self.loader = Loader(
            dataset,
            batch_size=recipe.batch_size,
            device=device,
            seed=recipe.seed,
            shard=shard,
            masks=self.state.views.needs_mask,
            drop_last=recipe.drop_last,
        )
        self.request = StopRequest()
        self.stopped_by = 0
        """Number of the signal that ended the training early; 0 for none."""
        self.images, self.seconds = 0, 0.0
        self.health: Health | None = None

    @property
    def encoder(self) -> Encoder:
        """The encoder that is trained."""
        assert isinstance(self.state.encoder, Encoder)
        return self.state.encoder

    def resume(self) -> None:
        """Go on from the last checkpoint.

        Raises:
            ValueError: it is damaged, or fewer epochs were asked for than are finished.
        """
        ranks, state = self.ranks, self.state
        saved = load_together(self.folder.last_checkpoint, ranks.shard)
        done = saved["epoch"] + bool(saved["epoch_step"])
        if self.recipe.epochs < done:
            raise ValueError(
                f"{done} epochs of the run in {self.folder.path} have begun: "
                f"give at least that many epochs, not {self.recipe.epochs}"
            )
        state.load_state_dict(saved)
        if saved["world"] != ranks.shard.world:
            # New ranks have no random state of their own: all begin anew, each with its own seed.
            state.generator.manual_seed(rank_seed(self.recipe, ranks.shard, state.step))
            self._checkpoint()
        self.console.print(
            f"resuming {self.folder.path} after epoch {state.epoch} of {self.recipe.epochs}",
            highlight=False,
        )

    def train(self, *, on_step: OnStep | None, on_epoch: OnStep | None) -> Pretrained:
        """Train to the end, or until asked to stop."""
        if self.ranks.is_rank_zero:
            self.log = MetricsLog(self.folder.path, epoch=self.state.epoch)
        self.bar = ProgressBar(
            self.console,
            epochs=self.recipe.epochs,
            total_steps=len(self.state.rates),
            done=self.state.step,
        )
        callbacks = {
            "on_step": _in_turn(self.bar.step, on_step, self._stop_if_asked),
            "on_epoch": _in_turn(self._after_epoch, on_epoch, self._stop_if_asked),
        }
        with self.request, self.bar:
            try:
                trainer = Trainer(self.state, fabric=self.ranks.fabric, loader=self.loader)
                trainer.fit(self.recipe.epochs, **callbacks)
            except Stop:
                self._checkpoint()
            finally:
                if self.ranks.is_rank_zero:
                    self.log.close()
        self.encoder.eval()
        if self.ranks.is_rank_zero:
            self._save_encoder(self.folder.path)
            if not self.stopped_by:
                self._report()
        return Pretrained(
            run=self.folder.path,
            encoder=self.encoder,
            steps=self.state.step,
            images_per_second=self.images / max(self.seconds, 1e-9),
            data_wait=self.loader.wait_seconds / max(self.seconds, 1e-9),
            health=self._last_health(),
            finished=not self.stopped_by,
        )

    def _stop_if_asked(self, metrics: StepMetrics) -> None:
        """Stop all ranks after the same step, by the signal that any of them got.

        After the last step of an epoch, the epoch is finished and logged first.
        """
        if self.state.epoch_step == self.loader.steps_per_epoch:
            return
        self.stopped_by = self.ranks.max(self.request.signal)
        if self.stopped_by:
            raise Stop

    def _after_epoch(self, metrics: StepMetrics) -> None:
        recipe, epoch = self.recipe, self.state.epoch
        self.images, self.seconds = self.images + metrics.images, self.seconds + metrics.seconds
        is_last = epoch == recipe.epochs
        values: dict[str, float | str] = {
            "step": float(metrics.step),
            **self.ranks.mean(metrics.means()),
            "lr": metrics.lr,
            **adversary_facts(self.state.adversary),
            "images_per_second": metrics.images / metrics.seconds,
            "data_wait": metrics.data_wait,
        }
        if self.ranks.is_rank_zero:
            if is_last or epoch % recipe.health_every == 0:
                values |= self._log_health()
            self.log.add(epoch, values)
        if is_last or epoch % recipe.checkpoint_every == 0:
            self._checkpoint()
            if self.ranks.is_rank_zero:
                self._save_encoder(self.folder.encoder_at(epoch))

    def _save_encoder(self, folder: Path) -> None:
        """Write the encoder into `folder`, and what the method projects its features with."""
        save_encoder(self.encoder, folder)
        head = self.state.method.projection_head()
        if isinstance(head, Projector):
            save_projector(head, folder)

    def _log_health(self) -> dict[str, float | str]:
        """Check the encoder's health, say it, and return what the log keeps of it."""
        health = self.health = self.check_health()
        self.bar.say(f"epoch {self.state.epoch}: {health.line()}")
        if health.advice:
            self.bar.say(f"  try: {health.advice}")
        return {
            "effective_rank": health.effective_rank,
            "large_singular_values": float(health.large_singular_values),
            "feature_std": health.feature_std,
            "verdict": health.verdict,
        }

    def _report(self) -> None:
        page = run_report(
            self.folder,
            self.dataset,
            title=f"{self.recipe.method.name} on {self.dataset.spec}",
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
        """Return the label-free health of the encoder as it is now, on the first examples."""
        images = self.dataset.images[:HEALTH_EXAMPLES]
        return health(extract(self.encoder, images, device=self.ranks.fabric.device))

    def _checkpoint(self) -> None:
        save_together(self.folder.last_checkpoint, self.state.state_dict(), self.ranks)
        for head in self.state.heads:
            head.discard_old()

    def close(self) -> None:
        """Let go of the heads' files, whether the run ended well or not."""
        self.state.close()


def _in_turn(*callbacks: OnStep | None) -> OnStep:
    """Return a callback that calls those that are there, one after the other."""

    def call(metrics: StepMetrics) -> None:
        for callback in callbacks:
            if callback is not None:
                callback(metrics)

    return call
