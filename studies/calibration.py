"""Are the audit's verdicts right? Encoders whose truth is known by construction.

A feature is planted into images of 12 x 12 pixels: the place of a square, a digit, a letter, a
color, or bits in channels of their own. Its class is one pattern, which pixels predict, or the sum
of two patterns modulo the number of classes, which pixels do not predict linearly, and an untrained
network only if the contrast is high. A network is trained with the labels, or not at all, and
audited in three forms:

- `intact`;
- `output`: the last layer removes all that a linear probe fitted on these images could use;
- `everywhere`: the first layer removes the pixels, channels or colors of the feature.

The truth of a trained network is learned, hidden, and lost or not learned; lost where networks
untrained predict the feature on average over the seeds. An untrained network is audited where
the truth is known too. The ceiling is a perfect accuracy, since every label can be computed from
its image; floors and stages are measured as `audit` does.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from studies.study import Arm, Measured, Scale, Study, cpu_study
from studies.trained import Trained
from widefield.audits.bounds import probe_tasks
from widefield.audits.stage_map import stage_outcomes
from widefield.audits.verdict import TaskAudit, audit_task
from widefield.core.rng import seeded
from widefield.data import Dataset
from widefield.encoders import build_encoder, untrained_like
from widefield.inference.splits import TrainTest
from widefield.probes import extract, pixels
from widefield.probes.features import DictionaryFeatures
from widefield.probes.floors import constant_outcomes, floors
from widefield.probes.outcome import Outcome
from widefield.probes.verdicts import EASY
from widefield.probes.wide import wide_or_none

Kind = Literal["place", "digit", "letter", "color", "bits"]
Content = Literal["noise", "gradient", "stripes"]
Erased = Literal["intact", "output", "everywhere"]
Truth = Literal["learned", "hidden", "lost", "not learned"]

CPU = torch.device("cpu")
_extract = partial(extract, device="auto", precision="auto")
SIDE, TASK = 12, "feature"
TRAIN, TEST, REFERENCE = 300, 300, 1000
KNOWN = 0.97
"""Accuracy from which a feature is known to be in a network."""
PREDICTED, CHANCE = 0.1, 0.05
"""Untrained networks predict a feature if they exceed chance by this, or else do not; between the
two the truth is not known."""
RIGHT = slice(SIDE // 2, SIDE)
"""Columns of everything that is drawn."""
GLYPHS: dict[Kind, tuple[str, ...]] = {
    "digit": (
        *("111 101 101 101 111", "010 110 010 010 111", "110 001 010 100 111"),
        *("111 001 011 001 111", "101 101 111 001 001", "111 100 110 001 110"),
    ),
    "letter": (
        *("010 101 111 101 101", "110 101 110 101 110", "011 100 100 100 011"),
        *("111 100 110 100 100", "101 110 100 110 101", "101 111 111 101 101"),
    ),
}
"""Rows of 3 pixels."""


@dataclass(frozen=True)
class World:
    """Images with a planted feature of `classes` classes."""

    kind: Kind
    classes: int
    content: Content
    contrast: int
    """Difference from the background, of 255."""
    summed: bool
    """Whether a class is the sum of two patterns modulo `classes`."""

    @property
    def title(self) -> str:
        """What is planted into what."""
        pattern = "sum of two" if self.summed else "one"
        return f"{self.kind} x {self.contrast}, {pattern}, {self.classes} classes, {self.content}"

    @property
    def channels(self) -> int:
        """Three colors, and two groups of channels of bits."""
        return 3 + 2 * self.bits if self.kind == "bits" else 3

    @property
    def bits(self) -> int:
        """Bits of one pattern."""
        return (self.classes - 1).bit_length()

    def sample(self, n: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return images uint8 [n, H, W, C] and their classes [n]."""
        rng = np.random.default_rng(seed)
        first, y = rng.integers(self.classes, size=(2, n))
        second = (y - first) % self.classes if self.summed else np.full(n, -1)
        if not self.summed:
            first = y
        x = np.zeros((n, SIDE, SIDE, self.channels))
        x[..., :3] = 128 + CONTENTS[self.content](n, rng)
        draw = {"color": self._tint, "bits": self._set_bits}.get(self.kind, self._draw)
        draw(x, first, 0)
        if self.summed:
            draw(x, second, 1)
        return np.clip(x, 0, 255).astype(np.uint8), y

    def _draw(self, x: NDArray[Any], pattern: NDArray[np.int64], part: int) -> None:
        """Add a square in one of the cells, or a glyph, to the upper or lower right quarter."""
        quarter = x[:, part * SIDE // 2 : (part + 1) * SIDE // 2, RIGHT, :3]
        for i, k in enumerate(pattern):
            if self.kind == "place":
                row, column = divmod(k, 2)
                quarter[i, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3] += self.contrast
            else:
                glyph = [[int(c) for c in row] for row in GLYPHS[self.kind][k].split()]
                quarter[i, :5, 1:4] += self.contrast * np.array(glyph)[..., None]

    def _tint(self, x: NDArray[Any], pattern: NDArray[np.int64], part: int) -> None:
        """Add a color whose mean is 0 to all rows, or to the upper or lower half."""
        angle = 2 * np.pi * pattern[:, None] / self.classes + np.array([0, 2, 4]) * np.pi / 3
        rows = slice(part * SIDE // 2, (part + 1) * SIDE // 2) if self.summed else slice(None)
        x[:, rows, :, :3] += self.contrast * np.cos(angle)[:, None, None]

    def _set_bits(self, x: NDArray[Any], pattern: NDArray[np.int64], part: int) -> None:
        """Set the bits of `pattern` in the channels of this part."""
        for bit in range(self.bits):
            x[..., 3 + part * self.bits + bit] = self.contrast * (pattern >> bit & 1)[:, None, None]

    def data(self, n: int, seed: int) -> Dataset:
        """Return labeled images."""
        images, y = self.sample(n, seed)
        names = tuple(map(str, range(self.classes)))
        return Dataset(
            spec=f"{self.kind} {seed}",
            images=images,
            labels={TASK: y},
            classes={TASK: names},
            names=[f"row {i}" for i in range(n)],
        )


def _noise(n: int, rng: np.random.Generator) -> NDArray[Any]:
    return rng.normal(0, 10, (n, SIDE, SIDE, 3))


def _gradient(n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return planes of random direction in gray, with a little noise."""
    slope = rng.uniform(-3, 3, (n, 2, 1, 1))
    at = np.arange(SIDE) - SIDE / 2
    return (slope[:, 0] * at + slope[:, 1] * at[:, None])[..., None] + 0.5 * _noise(n, rng)


def _stripes(n: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return waves of random direction, length and phase in gray, with a little noise."""
    wave, phase = rng.uniform(-1, 1, (n, 2, 1, 1)), rng.uniform(0, 2 * np.pi, (n, 1, 1))
    at = np.arange(SIDE)
    argument = wave[:, 0] * at + wave[:, 1] * at[:, None] + phase
    return (20 * np.sin(argument))[..., None] + 0.5 * _noise(n, rng)


CONTENTS: dict[Content, Callable[[int, np.random.Generator], NDArray[Any]]] = {
    "noise": _noise,
    "gradient": _gradient,
    "stripes": _stripes,
}


def without_feature(x: Tensor, kind: Kind) -> Tensor:
    """Return images x[B, C, H, W] without the colors, the bits, or the half with the feature."""
    if kind == "color":
        return x.mean(1, keepdim=True).expand_as(x)
    kept = torch.ones_like(x)
    if kind == "bits":
        kept[:, 3:] = 0
    else:
        kept[..., RIGHT] = 0
    return x * kept


class LinearErasure:
    """h -> h - S P S^+ (h - mean), after which h has no covariance with any class.

    Closed form of LEACE (Belrose et al. 2023, theorem 4.3): S is the square root of the covariance
    of h, and P projects on the span of S^+ cov(h, y).

    Args:
        h: features [n, D] that it is fitted on.
        y: their classes [n].
    """

    def __init__(self, h: Tensor, y: Tensor) -> None:
        h = h.double()
        self.mean, scale = h.mean(0), h.std(0)
        used = scale > 1e-6 * scale.max()
        # A unit that is never active must stay so: of rounding, a probe standardizes the classes.
        z = torch.where(used, (h - self.mean) / torch.where(used, scale, 1), 0)
        values, vectors = torch.linalg.eigh(z.T @ z / len(h))
        kept = values > 1e-10 * values.max()
        values, vectors = values[kept].sqrt(), vectors[:, kept]
        one_hot = functional.one_hot(y).double()
        cross = (vectors / values).T @ z.T @ (one_hot - one_hot.mean(0)) / len(h)
        left, singular, _ = torch.linalg.svd(cross, full_matrices=False)
        span = left[:, singular > 1e-6 * singular.max()]
        removed = (vectors / values) @ span @ span.T @ (vectors * values).T
        removed = removed * scale / torch.where(used, scale, torch.inf)[:, None]
        self.removed = removed * used

    def __call__(self, h: Tensor) -> Tensor:
        """Return features without the classes."""
        return (h - (h.double() - self.mean) @ self.removed).float()


class Known(nn.Module):
    """A network x[B, C, H, W] -> h[B, D] between two erasures, either of which may be absent.

    They are no submodules: they stand for weights that destroy a feature, not for stages.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        first: Callable[[Tensor], Tensor] | None = None,
        last: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.first, self.last = first, last

    def forward(self, x: Tensor) -> Tensor:
        """Return features."""
        x = x if self.first is None else self.first(x)
        h = self.network((x - 0.5) / 0.25)
        return h if self.last is None else self.last(h)


def _conv(channels: int) -> nn.Module:
    """Three convolutions, the last two of stride 2."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class Transformer(nn.Module):
    """A small ViT: four blocks of 32 dimensions on patches of 3 x 3 pixels, and a class token."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(channels, 32, 3, 3)
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, 32))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (SIDE // 3) ** 2, 32))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 2, 96, 0.0, batch_first=True, norm_first=True)
            for _ in range(4)
        )
        self.norm = nn.LayerNorm(32)

    def forward(self, x: Tensor) -> Tensor:
        """Return the class token."""
        patches = self.patches(x).flatten(2).mT
        x = torch.cat([self.token.expand(len(x), -1, -1), patches], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.norm(x[:, 0])


class Training(NamedTuple):
    """How an architecture is trained with labels."""

    build: Callable[[int], nn.Module]
    steps: int
    lr: float


def _resnet(channels: int) -> nn.Module:
    return build_encoder("resnet-tiny", image_size=SIDE, channels=channels, seed=0).backbone


NETWORKS: dict[str, Training] = {
    "conv": Training(_conv, 400, 5e-3),
    "resnet-tiny": Training(_resnet, 120, 5e-3),
    "vit": Training(Transformer, 200, 3e-3),
}

WORLDS = (
    World("place", 4, "noise", contrast=90, summed=False),
    World("place", 6, "gradient", contrast=90, summed=False),
    World("digit", 3, "gradient", contrast=90, summed=False),
    World("letter", 5, "stripes", contrast=90, summed=False),
    World("color", 3, "stripes", contrast=45, summed=False),
    World("bits", 8, "gradient", contrast=255, summed=False),
    World("place", 2, "stripes", contrast=90, summed=True),
    World("digit", 2, "noise", contrast=90, summed=True),
    World("bits", 2, "stripes", contrast=255, summed=True),
    World("place", 4, "noise", contrast=25, summed=True),
    World("letter", 4, "noise", contrast=25, summed=True),
)


def train(network: nn.Module, world: World, how: Training, seed: int) -> float:
    """Train in place with labels; return the accuracy of its own classifier on other images."""
    x, y = tensors(*world.sample(4000, _seed(world, seed, 0)))
    with seeded(seed):
        classifier = nn.Linear(network(x[:2]).shape[1], world.classes)
    optimizer = torch.optim.AdamW([*network.parameters(), *classifier.parameters()], lr=how.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, how.lr, total_steps=how.steps)
    generator = torch.Generator().manual_seed(seed)
    network.train()
    for _ in range(how.steps):
        rows = torch.randint(len(x), (64,), generator=generator)
        loss = functional.cross_entropy(classifier(network(x[rows])), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    network.eval()
    x, y = tensors(*world.sample(1000, _seed(world, seed, 1)))
    with torch.no_grad():
        return float((classifier(network(x)).argmax(1) == y).float().mean())


def tensors(images: NDArray[np.uint8], y: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Return images float32 [n, C, H, W] in [0, 1], and their classes [n]."""
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(y)


def _seed(world: World, seed: int, part: int) -> int:
    """Return a seed for each part of the images of a world, the same in every process."""
    return zlib.crc32(f"{world} {seed} {part}".encode())


def erased(network: nn.Module, kind: Kind, fit_on: Dataset) -> dict[Erased, nn.Module]:
    """Return the three forms of a network."""
    x, y = tensors(fit_on.images, fit_on.labels[TASK])
    with torch.no_grad():
        erasure = LinearErasure(Known(network)(x), y)
    return {
        "intact": Known(network),
        "output": Known(network, last=erasure),
        "everywhere": Known(network, first=partial(without_feature, kind=kind)),
    }


class Group:
    """Encoders of one architecture on the images of one world, with their bounds."""

    def __init__(self, world: World, architecture: str, seed: int) -> None:
        self.world, self.how, self.seed = world, NETWORKS[architecture], seed
        train_set, test_set = (
            world.data(n, _seed(world, seed, 3 + i)) for i, n in enumerate((TRAIN, TEST))
        )
        self.data = TrainTest(train=train_set, test=test_set)
        self.base = Known(self.network(1))
        wide = wide_or_none(self.base, train_set.images, device=CPU)
        assert wide is not None, "all of these networks have stages"
        self.untrained_stages = stage_outcomes(self.base, self.data, seed=seed)
        self.floors = floors(
            lambda encoder: probe_tasks(encoder, self.data, seed=seed),
            pixels=pixels,
            untrained=[partial(_extract, self.base), partial(_extract, wide)],
            dictionary=partial(_extract, DictionaryFeatures.of(train_set.images)),
            constant=constant_outcomes(train_set, test_set),
        )[TASK]

    def network(self, number: int) -> nn.Module:
        """Return an untrained network, as the audit makes one of a user's module."""
        network = self.how.build(self.world.channels)
        return untrained_like(network, seed=10 * self.seed + number).eval()

    def audit(self, encoder: nn.Module) -> TaskAudit:
        """Return the verdict on an encoder, with a ceiling of 100 %."""
        stages = stage_outcomes(encoder, self.data, seed=self.seed)
        wide = wide_or_none(encoder, self.data.train.images, device=CPU)
        assert wide is not None, "all of these networks have stages"
        perfect = Outcome(values=np.ones(TEST, bool), knn=1.0)
        return audit_task(
            TASK,
            probe_tasks(partial(_extract, encoder), self.data, seed=self.seed)[TASK],
            self.floors,
            perfect,
            classes=self.world.classes,
            stages={
                cell: (tasks[TASK], self.untrained_stages[cell][TASK])
                for cell, tasks in stages.items()
            },
            wide=probe_tasks(partial(_extract, wide), self.data, seed=self.seed)[TASK],
            seed=self.seed,
        )

    def trained(self) -> tuple[nn.Module, float]:
        """Return a network trained with the labels, and the accuracy of its classifier."""
        network = self.network(2)
        return network, train(nn.Sequential(Known(network)), self.world, self.how, self.seed)

    def references(self) -> dict[str, float]:
        """Return what another untrained network predicts of many images, pooled and by stages."""
        other = Known(self.network(3))
        many = self.world.data(REFERENCE, _seed(self.world, self.seed, 5))
        data = TrainTest(train=self.data.train, test=many)
        pooled = probe_tasks(partial(_extract, other), data)[TASK].value
        stages = stage_outcomes(other, data, seed=0)
        return {
            "pooled": round(pooled, 4),
            "stages": round(float(max(tasks[TASK].value for tasks in stages.values())), 4),
        }


def measure(trained: Trained) -> Measured:
    """Audit all encoders of a group: a world and an architecture."""
    about = trained.arm.about
    world: World = about["world"]
    group = Group(world, about["architecture"], trained.seed)
    network, accuracy = group.trained()
    networks = {"trained": network, "untrained": group.network(4)}
    audits = {
        f"{state} {form}": group.audit(encoder)
        for state, network in networks.items()
        for form, encoder in erased(network, world.kind, group.data.train).items()
    }
    return {
        "classifier": accuracy,
        "architecture": about["architecture"],
        "world": asdict(world),
        "untrained": group.references(),
        "encoders": {name: _kept(found) for name, found in audits.items()},
    }


def _kept(found: TaskAudit) -> dict[str, Any]:
    best = found.best_stage
    assert best is not None
    return {
        "verdict": found.verdict,
        "accuracy": round(found.accuracy, 4),
        "floor": round(found.floor, 4),
        "best_stage": best,
        "best": round(found.stages[best]["accuracy"], 4),
    }


def truth(encoder: str, run: Measured, untrained: dict[str, float]) -> Truth | None:
    """Return the truth of an encoder of a run, or None where it is not known.

    Args:
        encoder: state and form, such as `trained output`.
        run: what was measured.
        untrained: means over the seeds of what networks untrained predict.
    """
    state, form = encoder.split()
    above_chance = untrained["stages"] - 1 / run["world"]["classes"]
    if form == "everywhere":
        if above_chance >= PREDICTED:
            return "lost"
        return "not learned" if above_chance <= CHANCE else None
    if state == "trained":
        if run["classifier"] < KNOWN:
            return None
        return "learned" if form == "intact" else "hidden"
    if above_chance <= CHANCE:
        return "not learned"
    if form == "intact":
        return "learned" if untrained["pooled"] >= EASY else None
    return "hidden" if untrained["stages"] >= KNOWN else None


def is_right(truth: Truth, verdict: str) -> bool:
    """Return whether a verdict is the truth; a learned feature may also be easy."""
    return verdict == truth or (truth, verdict) == ("learned", "easy")


def _name(run: Measured) -> tuple[Any, ...]:
    return run["architecture"], *run["world"].values()


def summary(runs: Mapping[str, Measured]) -> dict[str, Any]:
    """Return how many verdicts are known, unclear and wrong, and each truth's verdicts.

    Args:
        runs: group -> what was measured of it.
    """
    references: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for run in runs.values():
        references.setdefault(_name(run), []).append(run["untrained"])
    confusion: dict[str, Counter[str]] = {}
    wrong = []
    for key, run in runs.items():
        means = {
            part: float(np.mean([reference[part] for reference in references[_name(run)]]))
            for part in ("pooled", "stages")
        }
        for encoder, found in run["encoders"].items():
            true = truth(encoder, run, means)
            if true is None:
                continue
            confusion.setdefault(true, Counter())[found["verdict"]] += 1
            if found["verdict"] != "unclear" and not is_right(true, found["verdict"]):
                wrong.append(f"{key} | {encoder}: {true}, audited as {found['verdict']}")
    return {
        "known": sum(sum(row.values()) for row in confusion.values()),
        "unclear": sum(row["unclear"] for row in confusion.values()),
        "wrong": wrong,
        "confusion": confusion,
    }


def _study(id: str, architectures: tuple[str, ...], seeds: tuple[int, ...]) -> Study:
    return cpu_study(
        id=id,
        question=f"Are the audit's verdicts right, on {' and '.join(architectures)}?",
        cpu=Scale(images=None, epochs=1, seeds=seeds, minutes=10),
        arms={
            f"{name} | {world.title}": Arm(
                data="cifar10", settings=None, about={"architecture": name, "world": world}
            )
            for name in architectures
            for world in WORLDS
        },
        measure=measure,
        conclusion="The accuracy is that of the network's own classifier.",
    )


CONVOLUTIONAL = _study("calibration", ("conv", "resnet-tiny"), seeds=(0, 1))
TRANSFORMERS = _study("calibration-vit", ("vit",), seeds=(0,))

STUDIES = [CONVOLUTIONAL, TRANSFORMERS]
