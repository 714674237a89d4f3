"""Which component of the views removes a feature: crop, flip, jitter, grayscale, blur, noise, ...

Let h be features and c one component of the views. A linear probe is fitted on h(c(x)) of training
images and scored on h(c(x)) of test images, with one draw of c for each image. Its accuracy a(c) is
compared with the accuracy a on h(x), paired over test images. With m the share of the commonest
class,

    kept(c) = (a(c) - m) / (a - m), clipped to [0, 1].

A component weakens the feature if the 95 % interval of kept(c) lies below 0.75, and removes it if
kept(c) is below 0.25 too. Views keep it if kept is 0.75 or more.

What decides are features that are not trained, those with the highest accuracy under each
condition: an encoder that was trained with c may ignore the feature whatever c does to it. If none
of the components lowers their accuracy, views do not explain why an encoder lacks the feature: the
loss preferred others.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from widefield.audits.planting import spread_subset
from widefield.core.devices import eval_mode, on_device
from widefield.core.hardware import choose_device, choose_precision
from widefield.inference.features import FeatureExtractor
from widefield.inference.run_views import run_views
from widefield.inference.splits import TrainTest
from widefield.probes import Pixels
from widefield.probes.checks import has_two_of_each
from widefield.probes.features import batches, features
from widefield.probes.floors import TaskOutcomes, best
from widefield.probes.paired import PairedDifference, percent
from widefield.probes.score import score
from widefield.probes.verdicts import LEARNED, MIN_GAP, WEAKENED
from widefield.report import Bars
from widefield.views import VIEWS, Augmentation, ImageAugmentation, ViewSettings, view_components

IMAGE_VIEWS = (
    "expert",
    "crop+color",
    "crop+flip",
    "moderate+flip",
    "gentle+flip",
    "crop",
    "moderate",
    "gentle",
    "flip+color",
    "color",
    "flip",
)
"""Views of images that may keep a feature, from the strongest to the weakest: without one or two
components of `expert`, or with a weaker crop."""
# Chosen by hand: images, views and features of a batch are in memory at once.
_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class ViewEffect:
    """Linear-probe accuracy without views (`before`) and on images seen through views (`after`)."""

    untrained: PairedDifference
    """Accuracy of untrained features: each time of those with the highest one."""
    encoder: PairedDifference
    """Accuracy of the features of the encoder."""
    kept: float
    kept_high: float
    """Share of the accuracy of untrained features above the commonest class that is left, in
    [0, 1], and the upper end of its 95 % interval."""

    @property
    def weakens(self) -> bool:
        """Whether the feature is significantly less predictable."""
        return self.kept_high < LEARNED

    @property
    def keeps(self) -> bool:
        """Whether the feature is about as predictable as without views."""
        return self.kept >= LEARNED


@dataclass(frozen=True, kw_only=True)
class ViewEffects:
    """Effects of the views of a run on one task, and which component removes its feature."""

    task: str
    views: str
    majority: float
    """Share of the commonest class in the test examples."""
    components: Mapping[str, ViewEffect]
    """Component -> its effect alone."""
    together: ViewEffect
    is_readable: bool
    """Whether untrained features predict the task well enough to measure what views change."""
    cause: str | None
    """The component that removes or weakens the feature the most; None if none does."""
    others: Mapping[str, ViewEffect]
    """Other views, the strongest first, up to those that keep the feature; empty if the views of
    the run do."""
    keeps: str | None
    """The last of `others` if it keeps the feature."""

    def line(self) -> str:
        """Return in one sentence which component removes the feature, if one does."""
        plain = percent(self.together.untrained.before)
        if not self.is_readable:
            return (
                f"{self.task}: untrained features predict it at {plain} without views, the "
                f"commonest class at {percent(self.majority)}: no effect of views can be measured"
            )
        if self.cause is None and not self.together.weakens:
            seen = (
                f"untrained features predict it at {plain} without views and at "
                f"{percent(self.together.untrained.after)} through {self.views}"
            )
            if self.together.keeps:
                reason = "the loss preferred other features"
                return f"{self.task}: the views do not remove it: {seen}; {reason}"
            return f"{self.task}: the views may weaken it: {seen}, too few examples to tell"
        effect = self.together if self.cause is None else self.components[self.cause]
        name = f"{self.views} as a whole" if self.cause is None else self.cause
        verb = "removes" if effect.kept < WEAKENED else "weakens"
        sentence = (
            f"{self.task}: {name} {verb} it: linear-probe accuracy of untrained features "
            f"{_change(effect.untrained)}, of the encoder's {_change(effect.encoder)}"
        )
        if self.keeps is None:
            return f"{sentence}; no other views keep it"
        return f"{sentence}; {self.keeps} keeps {percent(self.others[self.keeps].untrained.after)}"

    def command(self, init: str, data: str) -> str | None:
        """Return the command that trains `init` further on `data` with views that keep the feature.

        None where there are no such views, or the views of the run keep it.
        """
        if self.keeps is None:
            return None
        out = f"{init.rstrip('/')}-{self.keeps}"
        return shlex.join(
            ["widefield", "pretrain", data, "--init", init, "--views", self.keeps, "--out", out]
        )

    def figure(self) -> Bars:
        """Return the accuracies through every component, and through other views, as a figure."""
        rows = {
            **self.components,
            f"all of {self.views}": self.together,
            **{f"instead: {name}": effect for name, effect in self.others.items()},
        }
        return Bars(
            title=f"Which part of the views removes {self.task}?",
            caption="Linear-probe accuracy of untrained features on examples seen through one "
            f"component of {self.views}. A component removes the feature where its bar is much "
            f"shorter than the first; the commonest class is at {percent(self.majority)}.",
            shares={"without views": self.together.untrained.before}
            | {name: effect.untrained.after for name, effect in rows.items()},
        )


def explain(
    extractor: FeatureExtractor,
    data: TrainTest,
    tasks: Sequence[str],
    *,
    seed: int,
    untrained: Sequence[nn.Module] = (),
) -> dict[str, ViewEffects]:
    """Return the effects of the run's views on each of `tasks`.

    Without a run, they are those of `expert`. At most 2,000 training and 1,000 test examples are
    used; tasks that leave a class with one training example then are left out. Nothing is measured
    of views that need the mask of a planted object or the gradient of a loss. Modules `untrained`
    x[B, C, H, W] -> h[B, D], beside pixels, are the untrained architecture by default.
    """
    data = spread_subset(data)
    data = data.only(*(task for task in tasks if has_two_of_each(data.train.labels[task])))
    if not data.train.labels:
        return {}
    images = data.train.images[:2]
    pixels = Pixels.of(images) if extractor.front_end is None else Pixels()
    floors = untrained or extractor.untrained_encoders(images)[:1]
    probe = _ViewProbe(extractor, [pixels, *floors], data, seed)
    names, views = _views(extractor, probe)
    if views.needs_mask or views.gradient_calls:
        return {}
    return {task: _explain(task, names, views, probe) for task in data.train.labels}


def _explain(task: str, names: str, views: Augmentation, probe: "_ViewProbe") -> ViewEffects:
    parts = view_components(names, views)
    together = probe.effects(names, views)[task]
    # A policy of one component is that component: its views need not be measured twice.
    effects = (
        {name: probe.effects(f"{name} of {names}", part)[task] for name, part in parts.items()}
        if len(parts) > 1
        else dict.fromkeys(parts, together)
    )
    is_readable = probe.is_readable(task)
    weakening = [name for name, effect in effects.items() if effect.weakens]
    cause = None
    if weakening and is_readable:
        cause = min(weakening, key=lambda name: effects[name].kept)
    others: dict[str, ViewEffect] = {}
    if is_readable and (cause is not None or together.weakens):
        for name, candidate in _candidates(parts, cause, probe):
            others[name] = probe.effects(name, candidate)[task]
            if others[name].keeps:
                break
    return ViewEffects(
        task=task,
        views=names,
        majority=probe.majority[task],
        components=effects,
        together=together,
        is_readable=is_readable,
        cause=cause,
        others=others,
        keeps=next((name for name, effect in others.items() if effect.keeps), None),
    )


class _ViewProbe:
    """Linear probes on the same examples, seen through any views; each views are measured once."""

    def __init__(
        self,
        extractor: FeatureExtractor,
        untrained: Sequence[nn.Module],
        data: TrainTest,
        seed: int,
    ) -> None:
        self.extractor, self.data, self.seed = extractor, data, seed
        self.modules = [*untrained, extractor.build(data.train.images[:1])]
        self._measured: dict[str, dict[str, ViewEffect]] = {}
        self.majority = {
            task: float(np.bincount(y).max() / len(y)) for task, y in data.test.labels.items()
        }
        self.plain = self._outcomes(self.build("none"))

    def build(self, views: str | ViewSettings) -> Augmentation:
        """Return the augmentation of a policy, or of settings, for these examples."""
        return (ViewSettings.named(views) if isinstance(views, str) else views).build(
            channels=self.data.train.images.shape[3],
            seed=self.seed,
            kind=self.data.train.kind,
            front_end=self.extractor.front_end,
        )

    def is_readable(self, task: str) -> bool:
        """Return whether untrained features without views predict `task`, by the interval."""
        low, _ = best(self.plain[:-1])[task].interval
        return low >= self.majority[task] + MIN_GAP

    def effects(self, name: str, views: Augmentation) -> dict[str, ViewEffect]:
        """Return the effect of `views` on every task; `name` identifies them."""
        if name not in self._measured:
            seen = self._outcomes(views)
            self._measured[name] = {task: self._effect(seen, task) for task in self.majority}
        return self._measured[name]

    def _effect(self, seen: list[TaskOutcomes], task: str) -> ViewEffect:
        # Those of the encoder come last.
        before, after = (best(outcomes[:-1])[task] for outcomes in (self.plain, seen))
        untrained = after.minus(before, seed=self.seed)
        encoder = seen[-1][task].minus(self.plain[-1][task], seed=self.seed)
        baseline = self.majority[task]
        gap = max(untrained.before - baseline, 1e-9)
        kept, kept_high = (
            float(np.clip((share - baseline) / gap, 0, 1))
            for share in (untrained.after, untrained.before + untrained.high)
        )
        return ViewEffect(untrained=untrained, encoder=encoder, kept=kept, kept_high=kept_high)

    def _outcomes(self, views: Augmentation) -> list[TaskOutcomes]:
        device, data = choose_device("auto"), self.data
        generator = torch.Generator(device).manual_seed(self.seed)
        with ExitStack() as stack:
            for module in (views, *self.modules):
                stack.enter_context(on_device(module, device))
            train, test = (
                self._features(half.images, views, generator, device)
                for half in (data.train, data.test)
            )
        return [
            score(train_h, data.train, test_h, data.test, with_knn=False, seed=self.seed)
            for train_h, test_h in zip(train, test, strict=True)
        ]

    def _features(
        self,
        images: NDArray[np.generic],
        views: Augmentation,
        generator: Generator,
        device: torch.device,
    ) -> list[Tensor]:
        precision, rows = choose_precision("auto", device), []
        with ExitStack() as stack:
            for module in self.modules:
                stack.enter_context(eval_mode(module))
            for batch in batches(images, _BATCH, device):
                with torch.no_grad():
                    (x,) = views(batch, 1, generator)
                rows.append([features(module, x, precision) for module in self.modules])
        return [torch.cat(parts) for parts in zip(*rows, strict=True)]


def _views(extractor: FeatureExtractor, probe: _ViewProbe) -> tuple[str, Augmentation]:
    """Return the views of the run, as they are after training; without a run, those of `expert`."""
    if extractor.run is None:
        return "expert", probe.build("expert")
    settings = extractor.run.recipe().views
    views = probe.build(settings)
    is_learned = any(True for _ in views.parameters())
    return settings.names, run_views(extractor.run.path) if is_learned else views


def _candidates(
    parts: dict[str, Augmentation], cause: str | None, probe: _ViewProbe
) -> Iterator[tuple[str, Augmentation]]:
    """Yield views without the component `cause` or with a weaker one, the strongest first.

    Those of images that add a component, such as mirroring, come last.
    """
    if probe.data.train.kind == "images":
        adding = []
        for name in IMAGE_VIEWS:
            views = probe.build(name)
            others = view_components(name, views)
            same = [part for part in parts if _has_same(part, parts, others)]
            is_run_policy = len(same) == len(parts) == len(others)
            if cause in same or is_run_policy:
                continue
            if others.keys() <= parts.keys():
                yield name, views
            else:
                adding.append((name, views))
        yield from adding
        return
    # Of windows and sounds: subsets of the components, the largest first.
    rest = [name for name in parts if name in VIEWS and name != cause]
    for size in range(len(rest), 0, -1):
        for subset in map("+".join, combinations(rest, size)):
            yield subset, probe.build(subset)


def _has_same(
    name: str, parts: Mapping[str, Augmentation], others: Mapping[str, Augmentation]
) -> bool:
    """Return whether `others` have the operation `name` of `parts`, with the same settings."""
    if name not in others:
        return False
    part, other = parts[name], others[name]
    both = isinstance(part, ImageAugmentation) and isinstance(other, ImageAugmentation)
    return both and vars(part) == vars(other)


def _change(score: PairedDifference) -> str:
    return f"{percent(score.before)} without views, {percent(score.after)} through it"
