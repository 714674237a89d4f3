"""A run of pretraining in its folder: trains, saves, and resumes."""

import copy
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from widefield.config.recipe import Recipe
from widefield.core.errors import option
from widefield.data import Dataset, Loader
from widefield.encoders import (
    READOUT_FILE,
    Encoder,
    averaged,
    first_invalid,
    load_encoder,
    save_readout,
)
from widefield.encoders import save_encoder as save_encoder_to
from widefield.encoders.own import known_digest
from widefield.methods import Projector, save_projector
from widefield.methods.projector_file import PROJECTOR_FILE
from widefield.metrics import Health
from widefield.probes.comparison import Comparison
from widefield.probes.explained import trained_share
from widefield.probes.monitor import Monitor, share_text
from widefield.probes.wide import fit_on_dataset
from widefield.report.tables import ResultTable, TabularResult
from widefield.train.adversary import adversary_log
from widefield.train.build import (
    DataInfo,
    build,
    build_run_encoder,
    check_view_policy,
    fit_encoder,
    warmup_epochs,
)
from widefield.train.checkpoint import save_sharded
from widefield.train.distributed import DistributedContext
from widefield.train.interrupt import Stop, StopRequest
from widefield.train.loop import OnStep, Trainer
from widefield.train.manifest import Growth, Manifest
from widefield.train.next_steps import next_command
from widefield.train.progress import (
    LoggerName,
    MetricsLog,
    ProgressBar,
    StepLog,
    images_bar,
    print_line,
)
from widefield.train.run_dir import RunFolder
from widefield.train.step import StepMetrics

# Chosen by hand: a head of many rows takes longer to save than this share of a minute.
MAX_SAVE_SHARE = 0.05
"""Largest share of the time for checkpoints within an epoch."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Pretrained(TabularResult):
    """Result of a pretraining run; a path-like object of its folder."""

    run: Path
    """Folder of the run."""
    encoder: Encoder
    steps: int
    """Optimizer steps of the run, over all resumes."""
    images_per_second: float
    """Examples per second of this call, views and logging included."""
    data_wait: float
    """Share of this call's training time spent waiting for data."""
    health: Health
    comparison: Comparison | None = None
    """Comparison of the encoder with its initial weights, or with random ones; None for few
    examples, and for windows and sounds."""
    finished: bool
    """False if it was stopped by a signal; `resume=True` continues it."""
    next_command: str
    """Suggested command for the encoder of the run."""
    trained_share: float | None = None
    """Share of trained weights in their average with the initial ones; None without an average."""
    adapted: Path | None = None
    """Folder of the trained encoder, if it is worse than the initial one and `encoder` is that."""

    def __fspath__(self) -> str:
        return str(self.run)

    def tables(self) -> list[ResultTable]:
        """Return at most six lines."""
        found, health = self.comparison, self.health.line()
        answer = health if found is None else found.answer()
        details = [] if found is None else [health, *found.lines()[1:2]]
        if found is not None and found.linear:
            details.insert(0, found.lines()[0])
        if found is not None and found.copies is not None:
            details[-1] = found.copies
        weights = self._weights_line()
        if weights is not None:
            if found is not None and len(details) > 2:
                details = [details[0], found.copies or health]
            details.append(weights)
        work = f"{self.steps} steps, {self.images_per_second:,.0f} examples/s"
        page = f"{self.run / 'report.html'}: curves, views and scores of this run; {work}"
        last_line = page if self.finished else f"{self.run}: {work}"
        lines = [*details, last_line, f"next: {self.next_command}"]
        return [ResultTable(title=answer, lines=lines)]

    def _weights_line(self) -> str | None:
        """Return which weights a run from initial ones hands over; None for other runs."""
        if self.adapted is not None:
            return (
                f"{self.run} hands over the initial encoder; the adapted one is {self.adapted}: a "
                f"lower {option('init_lr_scale')} or fewer {option('epochs')} change it less"
            )
        if self.trained_share is None:
            return None
        initial = RunFolder(path=self.run).init_folder
        return (
            f"{share_text(self.trained_share)} ({option('init_average')}); the initial encoder is "
            f"{initial}, whose features classify takes too"
        )


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What `start` or `resume` of `widefield.workflows` decided about a run."""

    recipe: Recipe
    """Every setting, resolved."""
    dataset: Dataset
    """The examples in the order of the run."""
    ranks: DistributedContext
    initial: Encoder | None = None
    """The encoder before the first step; None for random weights."""
    growth: Growth | None = None
    """When examples were added; None if the run has had all from the start."""
    group: str | None = None
    """Examples that belong together, as given to `pretrain`."""
    threads: int = 1
    has_checkpoint: bool = False
    """Whether the run goes on from its last checkpoint."""
    notes: tuple[str, ...] = ()
    """Notes on data, settings and initial weights, for the user."""


class PretrainRun:
    """Training of one call of `pretrain`, with its logs, checkpoints and encoders."""

    def __init__(
        self,
        prepared: Prepared,
        folder: RunFolder,
        console: Console,
        logger: LoggerName | None = None,
    ) -> None:
        recipe, dataset, ranks = prepared.recipe, prepared.dataset, prepared.ranks
        self.recipe, self.dataset, self.ranks = recipe, dataset, ranks
        self.folder, self.console, self.logger = folder, console, logger
        self.growth = prepared.growth or Growth(
            first=len(dataset), warmup_epochs=warmup_epochs(recipe)
        )
        device, shard = ranks.compute.device, ranks.shard
        info = DataInfo.of(dataset, prepared.growth)
        encoder = copy.deepcopy(prepared.initial)
        if encoder is None:
            encoder = build_run_encoder(recipe, info, device)
            if not prepared.has_checkpoint:
                fit_encoder(encoder, dataset.subset(slice(self.growth.first)), seed=recipe.seed)
        self.state = build(
            recipe,
            info,
            device=device,
            encoder=encoder,
            shard=shard,
            folder=folder.rows_folder,
            targets=folder.targets(len(dataset)),
        )
        check_view_policy(self.state.views, self.state.method, dataset, recipe.views.names)
        self.loader = Loader(
            dataset,
            batch_size=recipe.batch_size,
            device=device,
            seed=recipe.seed,
            shard=shard,
            masks=self.state.views.needs_mask,
            crop=self.state.views.crop,
            views=self.state.method.view_count,
            drop_last=recipe.drop_last,
        )
        self.request = StopRequest()
        self.stopped_by = 0
        """Number of the signal that stopped the training; 0 for none."""
        self.images, self.seconds = 0, 0.0
        self.monitor = Monitor(
            self.encoder,
            dataset,
            seed=recipe.seed,
            device=device,
            initial=prepared.initial,
            use_labels=not self.state.method.needs_labels,
        )
        self._saved_at, self._save_seconds = time.monotonic(), 0.0

    @property
    def encoder(self) -> Encoder:
        assert isinstance(self.state.encoder, Encoder)
        return self.state.encoder

    def print_line(self, line: str) -> None:
        print_line(self.console, line)

    def train(self, *, on_step: OnStep | None, on_epoch: OnStep | None) -> Pretrained:
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
            may_rise=self.state.step == 0
            and self.recipe.method.flat().get("head_init") == "embedding",
        )

        def after_step(metrics: StepMetrics) -> None:
            self.bar.step(metrics)
            if self.ranks.is_rank_zero:
                self.step_log.add(metrics)
            if on_step is not None:
                on_step(metrics)
            self._stop_or_save(metrics)

        def after_epoch(metrics: StepMetrics) -> None:
            self._end_epoch(metrics)
            if on_epoch is not None:
                on_epoch(metrics)
            self._stop(self.ranks.max(self.request.signal), metrics)

        with self.request, self.bar:
            try:
                trainer = Trainer(self.state, compute=self.ranks.compute, loader=self.loader)
                trainer.fit(self.recipe.epochs, on_step=after_step, on_epoch=after_epoch)
            except Stop:
                self.save_checkpoint()
            finally:
                if self.ranks.is_rank_zero:
                    self.log.close()
        self.encoder.eval()
        self.ranks.on_rank_zero(self._save_final)
        self._receive()
        return self._result()

    def _save_final(self) -> None:
        # A readout of the encoder before must not stay beside this one, even after a kill.
        (self.folder.path / READOUT_FILE).unlink(missing_ok=True)
        self.save_encoder(self.folder.path)
        if not self.stopped_by:
            self._finish()

    def _receive(self) -> None:
        """Take over the encoder of the first process, and its comparison.

        That of another process is no average with initial weights, and its batch normalization may
        have the statistics of other examples.
        """
        monitor = self.monitor
        monitor.share, monitor.comparison = self.ranks.broadcast(
            (monitor.share, monitor.comparison)
        )
        if not self.ranks.is_rank_zero and self._best() is not monitor.initial:
            self.encoder.load_state_dict(load_encoder(self.folder.path).state_dict())

    def _result(self) -> Pretrained:
        return Pretrained(
            run=self.folder.path,
            encoder=self._best(),
            trained_share=self.monitor.share,
            adapted=self.folder.encoder_at(self.state.epoch)
            if self._best() is self.monitor.initial
            else None,
            steps=self.state.step,
            images_per_second=self.images / max(self.seconds, 1e-9),
            data_wait=self.loader.wait_seconds / max(self.seconds, 1e-9),
            health=self.monitor.last_health(),
            comparison=self.monitor.comparison,
            finished=not self.stopped_by,
            next_command=next_command(self.folder.path, self.dataset, self.recipe.encoder.name),
        )

    def _stop_or_save(self, metrics: StepMetrics) -> None:
        """Stop all ranks after the same step if one got a signal, or save a checkpoint in time.

        After the last step of an epoch, the epoch is finished and logged first.
        """
        if self.state.epoch_step == self.loader.steps_per_epoch:
            return
        wait = max(60 * self.recipe.checkpoint_minutes, self._save_seconds / MAX_SAVE_SHARE)
        is_due = time.monotonic() - self._saved_at >= wait
        # Signal and due checkpoint go in one number, because each message between processes is a
        # wait at every step. A rank that got a signal has the largest number, and its save counts.
        code = self.ranks.max(2 * self.request.signal + is_due)
        self._stop(code // 2, metrics)
        if code:
            self.save_checkpoint()

    def _stop(self, sign: int, metrics: StepMetrics) -> None:
        """Stop if there was a signal, which ends the run after its checkpoint."""
        self.stopped_by = sign
        if sign:
            if self.state.epoch_step:  # else the epoch is counted
                self._count(metrics)
            raise Stop

    def _count(self, metrics: StepMetrics) -> None:
        self.images, self.seconds = self.images + metrics.images, self.seconds + metrics.seconds

    def _end_epoch(self, metrics: StepMetrics) -> None:
        recipe, epoch = self.recipe, self.state.epoch
        self._count(metrics)
        is_last = epoch == recipe.epochs
        values: dict[str, float | str] = {
            "step": metrics.step,
            **self.ranks.mean(metrics.means()),
            "lr": metrics.lr,
            **adversary_log(self.state.adversary),
            "images_per_second": metrics.images / metrics.seconds,
            "data_wait": metrics.data_wait,
        }
        if self.ranks.is_rank_zero:
            if is_last or epoch % recipe.health_every == 0:
                values |= self.monitor.log_health(epoch, self.bar.print_line)
            self.log.add(epoch, values)
        # The checkpoint first: after a kill between the two, a resume writes the encoder from it.
        if self.is_save_epoch(epoch):
            self.save_checkpoint()
            if self.ranks.is_rank_zero:
                self.save_encoder(self.folder.encoder_at(epoch))

    def is_save_epoch(self, epoch: int) -> bool:
        """Return whether a checkpoint and an encoder are saved at the end of `epoch`."""
        return epoch == self.recipe.epochs or epoch % self.recipe.checkpoint_every == 0

    def save_encoder(self, folder: Path) -> None:
        save_encoder_to(self.encoder, folder)
        if self.projector is not None:
            save_projector(self.projector, folder)

    def _finish(self) -> None:
        """Compare the result with its baseline, hand over the better one, and fit its readout.

        The encoder of the last epoch, which is among the checkpoints, stays there.
        """
        # Untrained networks are no measure of one that was trained on labels: test examples are.
        if self.monitor.use_labels or self.monitor.initial is not None:
            self._compare()
        best = self._best()
        if best is not self.encoder:
            (self.folder.path / PROJECTOR_FILE).unlink(missing_ok=True)
            save_encoder_to(best, self.folder.path)
        self._save_readout(best)

    def _compare(self) -> None:
        self.print_line("measuring: the comparison with its floors")
        with images_bar(self.console, "measuring") as progress:  # it may take minutes
            self._average()
            self.monitor.compare(progress)
        if self.monitor.comparison is not None:
            self.monitor.comparison.write(self.folder.path / "comparison.json")

    def _best(self) -> Encoder:
        """Return the trained encoder, or the initial one if training made it worse."""
        initial = self.monitor.initial
        return initial if initial is not None and self.monitor.is_worse else self.monitor.encoder

    def _average(self) -> None:
        """Let the monitor evaluate the average with the initial weights, unless labels trained."""
        initial, share = self.monitor.initial, self.recipe.init_average
        if initial is None or not self.monitor.use_labels:
            return
        if share is None:
            device = self.monitor.device
            share = trained_share(initial, self.encoder, self.dataset, device=device)
        # A share of 1 is the trained encoder itself, whose projector stays beside it.
        encoder = self.encoder if share == 1 else averaged(initial, self.encoder, share)
        self.monitor.take(encoder, share)

    def _save_readout(self, encoder: Encoder) -> None:
        self.print_line("fitting: wide features")
        try:
            with images_bar(self.console, "fitting") as progress:
                readout = fit_on_dataset(
                    encoder, self.dataset, device=self.monitor.device, progress=progress
                )
        except ValueError as error:  # features are pooled alone for encoders without stages
            self.print_line(f"no wide readout: {error}")
            return
        save_readout(readout, self.folder.path)

    @property
    def projector(self) -> Projector | None:
        """The projection head that is saved beside the encoder; None without."""
        head = self.state.method.projection_head()
        return head if isinstance(head, Projector) else None

    def save_checkpoint(self, manifest: Manifest | None = None) -> None:
        """Save a checkpoint of the run, with its manifest or a pending one."""
        tensor_name = first_invalid(self.encoder.state_dict())
        if self.ranks.max(tensor_name is not None):
            raise ValueError(
                f"the weights are NaN or infinite after step {self.state.step} ({tensor_name}): "
                f"lower lr or use {option('precision', 32)}, and start again with another "
                f"{option('out')}"
            )
        start_time = time.monotonic()
        state = self.state.state_dict() | {
            "run": self.folder.identity(self.recipe, manifest or self.folder.manifest),
            "network": known_digest(self.encoder.config.name),
        }
        save_sharded(self.folder.last_checkpoint, state, self.ranks)
        # Last, because a resume from the checkpoint before needs the older rows.
        for head in self.state.heads:
            head.storage.remove_old()
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - start_time

    def close(self) -> None:
        self.state.close()
