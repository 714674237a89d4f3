"""A run of pretraining in its folder: trains, saves, and resumes."""

import copy
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from widefield.config.recipe import Recipe
from widefield.data import Dataset, Loader, steps_per_epoch
from widefield.encoders import Encoder, no_numbers, save_encoder
from widefield.evaluation.comparison import Comparison
from widefield.evaluation.monitor import Monitor
from widefield.methods import Projector, save_projector
from widefield.metrics import Health
from widefield.train.adversary import adversary_facts
from widefield.train.build import DataFacts, build, rank_seed, refuse_misfit
from widefield.train.checkpoint import NOT_OURS, load_together, save_together
from widefield.train.distributed import DistributedContext
from widefield.train.interrupt import Stop, StopRequest
from widefield.train.loggers import LoggerName
from widefield.train.loop import OnStep, Trainer
from widefield.train.manifest import Growth, Manifest
from widefield.train.next_steps import next_command
from widefield.train.progress import MetricsLog, ProgressBar, StepLog
from widefield.train.run_dir import RunFolder
from widefield.train.state import device_of
from widefield.train.step import StepMetrics

SAVING_SHARE = 0.05
"""Share of the time that checkpoints within an epoch may take."""


def seconds_between_saves(minutes: float, saving_seconds: float) -> float:
    """Return how long to wait from one checkpoint to the next, if one took `saving_seconds`.

    Example:
        >>> seconds_between_saves(1.0, saving_seconds=0.1), seconds_between_saves(1.0, 9.0)
        (60.0, 180.0)
    """
    return max(60 * minutes, saving_seconds / SAVING_SHARE)


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """What a pretraining run left; it may stand wherever the run's folder does."""

    run: Path
    """Folder of the run."""
    encoder: Encoder = field(repr=False)
    steps: int
    """Optimizer steps since the run began, over all resumes."""
    images_per_second: float
    """Examples per second of this call, views and logging included."""
    data_wait: float
    """Share of this call's training time spent waiting for data."""
    health: Health
    comparison: Comparison | None = None
    """The encoder beside the one it was initialized from, or beside itself untrained; None for few
    examples, and for windows and sounds."""
    finished: bool
    """False when it was asked to stop; `resume=True` goes on."""
    next_command: str
    """What to do with the encoder: a command that works on this run."""

    def __fspath__(self) -> str:
        """Return the folder of the run."""
        return str(self.run)


class PretrainRun:
    """The training of one call of `pretrain`, with its logs, checkpoints and encoders.

    The caller claims the folder, describes the run in it, and writes its page.
    """

    def __init__(
        self,
        recipe: Recipe,
        dataset: Dataset,
        folder: RunFolder,
        console: Console,
        ranks: DistributedContext,
        start: Encoder | None = None,
        logger: LoggerName | None = None,
        growth: Growth | None = None,
    ) -> None:
        self.recipe, self.dataset, self.folder = recipe, dataset, folder
        self.growth = growth or Growth(first=len(dataset))
        self.console, self.ranks, self.logger = console, ranks, logger
        device, shard = ranks.fabric.device, ranks.shard
        facts, rows = DataFacts.of(dataset, growth), folder.rows_folder
        self.state = build(
            recipe,
            facts,
            device=device,
            encoder=copy.deepcopy(start),
            shard=shard,
            folder=rows,
        )
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
        self.monitor = Monitor(
            self.encoder,
            dataset,
            seed=recipe.seed,
            device=device,
            initial=start,
            use_labels=not self.state.method.needs_labels,
        )
        self._saved_at, self._saving_seconds = time.monotonic(), 0.0

    @property
    def encoder(self) -> Encoder:
        """The encoder that is trained."""
        assert isinstance(self.state.encoder, Encoder)
        return self.state.encoder

    def resume(self, place: str | None) -> bool:
        """Go on from the last checkpoint; return False where the run died before its first one.

        `place` is where the examples were read, None of arrays.

        Raises:
            ValueError: it is gone or damaged, run.yaml or the data changed since it was made, or
                fewer epochs were asked for than are finished.
        """
        folder, ranks, manifest = self.folder, self.ranks, self.folder.manifest
        if not folder.has_checkpoint():
            if manifest.file.exists():
                manifest.refuse_other(self.dataset, may_grow=True)
            self._say(f"{folder.path} has no checkpoint yet: the run begins again")
            return False
        saved = load_together(folder.last_checkpoint, ranks.shard)
        folder.refuse_edited(self.recipe, saved.get("run"))
        new = manifest.refuse_other(self.dataset, may_grow=True)
        growth = manifest.growth()
        done = self._epochs_begun(saved, growth, new)
        if self.recipe.epochs < done:
            raise ValueError(
                f"{done} epochs of the run in {folder.path} have begun: "
                f"give at least that many epochs, not {self.recipe.epochs}"
            )
        if new and saved["epoch"] == self.recipe.epochs:
            raise ValueError(
                f"{new} examples are new and all {saved['epoch']} epochs of the run in "
                f"{folder.path} are done: give more --epochs, so that they are trained on"
            )
        self._go_on_from(saved, new)
        examples = len(self.dataset)
        ranks.on_rank_zero(lambda: self._save_owed_encoder(growth))
        ranks.on_rank_zero(lambda: folder.keep_changed(self.recipe, data=place, examples=examples))
        ranks.on_rank_zero(folder.remove_drafts)
        self._say(f"resuming {folder.path} after epoch {done} of {self.recipe.epochs}")
        if new:
            self._take_in(new)
        return True

    def _epochs_begun(self, saved: dict[str, Any], growth: Growth, new: int) -> int:
        """Return how many epochs the saved run has begun; it had all examples but `new`.

        Raises:
            ValueError: its counts of epochs and steps do not fit together.
        """
        epoch, epoch_step, step = (saved.get(name) for name in ("epoch", "epoch_step", "step"))
        size, drop = self.recipe.batch_size, self.recipe.drop_last
        steps = steps_per_epoch(len(self.dataset) - new, size, drop_last=drop)
        if not (type(epoch) is type(epoch_step) is type(step) is int) or (
            epoch < growth.epoch
            or not 0 <= epoch_step < steps
            or step != growth.step + (epoch - growth.epoch) * steps + epoch_step
        ):
            raise ValueError(NOT_OURS.format(self.folder.last_checkpoint))
        return epoch + bool(epoch_step)

    def _go_on_from(self, saved: dict[str, Any], new: int) -> None:
        """Take over a saved state, which had all examples but `new`.

        Raises:
            ValueError: it is that of another run, or the method cannot take new examples.
        """
        ranks, state = self.ranks, self.state
        try:
            state.load_state_dict(saved)
        except (KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
            if new:
                raise ValueError(
                    f"{self.recipe.method.name} has weights for each example or class, so that no "
                    f"new ones can join: start another run, with --init {self.folder.path}"
                ) from error
            raise ValueError(NOT_OURS.format(self.folder.last_checkpoint)) from error
        seed = rank_seed(self.recipe, ranks.shard, state.step)
        before, now = device_of(saved), state.generator.device.type
        if before != now:
            self._say(f"trained on {before} so far, now on {now}: random numbers begin anew")
            torch.manual_seed(seed)
            state.generator.manual_seed(seed)
        if saved["world"] != ranks.shard.world:
            # New ranks have no random state of their own: all begin anew, each with its own seed.
            state.generator.manual_seed(seed)
            if not new:  # else it is saved once they have joined
                self._checkpoint()

    def _save_owed_encoder(self, growth: Growth) -> None:
        """Save the encoder of the epoch that just ended, if the run was killed before it had.

        The checkpoint comes first, so that no later one is without it. Where the examples of
        `growth` joined at this very step, an epoch may have been under way, and none has ended.
        """
        state, folder = self.state, self.folder
        if state.epoch_step or state.step == growth.step:
            return
        due = self._is_due(state.epoch) or state.epoch == folder.recipe().epochs
        if due and not folder.holds_encoder_at(state.epoch, projector=self._projector is not None):
            self._save_encoder(folder.encoder_at(state.epoch))

    def _take_in(self, new: int) -> None:
        """Let new examples join, which takes a checkpoint: from then on they belong to the run.

        An epoch under way begins again, with all examples.
        """
        folder, state = self.folder, self.state
        again = ", which begins again" if state.epoch_step else ""
        state.epoch_step, state.sums = 0, {}
        self._say(
            f"{new} examples are new, {len(self.dataset)} in all: they join with epoch "
            f"{state.epoch + 1}{again}"
        )
        grown = folder.grown_manifest
        self.ranks.on_rank_zero(lambda: grown.write(self.dataset, self.growth))
        self._checkpoint(grown)
        self.ranks.on_rank_zero(lambda: folder.name_manifest(grown.checksum()))

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def train(self, *, on_step: OnStep | None, on_epoch: OnStep | None) -> Pretrained:
        """Train to the end, or until asked to stop."""
        if self.ranks.is_rank_zero:
            path, every, state = self.folder.path, self.recipe.metrics_every, self.state
            self.log = MetricsLog(path, epoch=state.epoch, logger=self.logger)
            self.step_log = StepLog(
                path, step=state.step, every=every, epoch=state.epoch, sums=state.sums
            )
        self.bar = ProgressBar(
            self.console,
            epochs=self.recipe.epochs,
            total_steps=len(self.state.rates),
            done=self.state.step,
        )
        callbacks = {
            "on_step": _in_turn(self._log_step, on_step, self._stop_if_asked, self._save_in_time),
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
                self._compare()
        return Pretrained(
            run=self.folder.path,
            encoder=self.encoder,
            steps=self.state.step,
            images_per_second=self.images / max(self.seconds, 1e-9),
            data_wait=self.loader.wait_seconds / max(self.seconds, 1e-9),
            health=self.monitor.last_health(),
            comparison=self.monitor.comparison,
            finished=not self.stopped_by,
            next_command=next_command(self.folder.path, self.dataset),
        )

    def _log_step(self, metrics: StepMetrics) -> None:
        self.bar.step(metrics)
        if self.ranks.is_rank_zero:
            self.step_log.add(metrics)

    def _save_in_time(self, metrics: StepMetrics) -> None:
        """Save a checkpoint within an epoch where the last one is long ago, on all ranks at once.

        After the last step of an epoch, the epoch is finished first.
        """
        if self.state.epoch_step == self.loader.steps_per_epoch:
            return
        wait = seconds_between_saves(self.recipe.checkpoint_minutes, self._saving_seconds)
        if self.ranks.max(time.monotonic() - self._saved_at >= wait):
            self._checkpoint()

    def _stop_if_asked(self, metrics: StepMetrics) -> None:
        """Stop all ranks after the same step, by the signal that any of them got.

        After the last step of an epoch, the epoch is finished and logged first.
        """
        if self.state.epoch_step == self.loader.steps_per_epoch:
            return
        self.stopped_by = self.ranks.max(self.request.signal)
        if self.stopped_by:
            if self.state.epoch_step:  # else the epoch is counted
                self._count(metrics)
            raise Stop

    def _count(self, metrics: StepMetrics) -> None:
        """Count the images and seconds of an epoch, or of the part of it that was trained."""
        self.images, self.seconds = self.images + metrics.images, self.seconds + metrics.seconds

    def _after_epoch(self, metrics: StepMetrics) -> None:
        recipe, epoch = self.recipe, self.state.epoch
        self._count(metrics)
        is_last = epoch == recipe.epochs
        values: dict[str, float | str] = {
            "step": metrics.step,
            **self.ranks.mean(metrics.means()),
            "lr": metrics.lr,
            **adversary_facts(self.state.adversary),
            "images_per_second": metrics.images / metrics.seconds,
            "data_wait": metrics.data_wait,
        }
        if self.ranks.is_rank_zero:
            if is_last or epoch % recipe.health_every == 0:
                values |= self.monitor.log_health(epoch, self.bar.say)
            self.log.add(epoch, values)
        if self._is_due(epoch):
            self._checkpoint()
            if self.ranks.is_rank_zero:
                self._save_encoder(self.folder.encoder_at(epoch))

    def _is_due(self, epoch: int) -> bool:
        """Return whether a checkpoint and an encoder are kept at the end of `epoch`."""
        return epoch == self.recipe.epochs or epoch % self.recipe.checkpoint_every == 0

    def _save_encoder(self, folder: Path) -> None:
        """Write the encoder into `folder`, and what the method projects its features with."""
        save_encoder(self.encoder, folder)
        if self._projector is not None:
            save_projector(self._projector, folder)

    @property
    def _projector(self) -> Projector | None:
        """What is saved beside the encoder."""
        head = self.state.method.projection_head()
        return head if isinstance(head, Projector) else None

    def _compare(self) -> None:
        """Compare the encoder with its baseline, and keep the comparison."""
        self.monitor.compare()
        if self.monitor.comparison is not None:
            self.monitor.comparison.write(self.folder.comparison_file)

    def _checkpoint(self, manifest: Manifest | None = None) -> None:
        """Save the run, so that it can go on from here, by its manifest or by a grown one.

        Raises:
            ValueError: the weights are no numbers any more; the last checkpoint stays.
        """
        broken = no_numbers(self.encoder.state_dict())
        if self.ranks.max(broken is not None):
            raise ValueError(
                f"the weights are no numbers after step {self.state.step} ({broken}): lower lr or "
                "use --precision 32, and start again with another --out"
            )
        began = time.monotonic()
        state = self.state.state_dict() | {
            "run": self.folder.identity(self.recipe, manifest or self.folder.manifest)
        }
        save_together(self.folder.last_checkpoint, state, self.ranks)
        for head in self.state.heads:
            head.storage.discard_old()
        self._saved_at = time.monotonic()
        self._saving_seconds = self._saved_at - began

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
