"""What the views of Feature Dropout's runs change, its figure 1 and appendix C."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import mean

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Generator, Tensor, nn

from studies.feature_dropout import (
    CPU,
    DATA,
    EXPERT,
    GATE,
    GPU,
    LEARNED,
    PLANTS,
    PROBE,
    T1,
    chosen,
    scored,
)
from studies.study import RATE, TINY, TOGETHER, Arm, Finding, Measured, SeedRuns, Study
from studies.trained import Trained, at_best_rate
from widefield.data import Dataset
from widefield.encoders import FeatureMap
from widefield.inference.run_views import run_views, untrained_views
from widefield.methods.simclr import nt_xent
from widefield.metrics import bimodality_coefficient
from widefield.probes import extract, fit_linear
from widefield.probes.features import image_batch
from widefield.views import Augmentation, AugmentContext, build_views
from widefield.views.simple import Identity

VIEWS = 1200
"""Views of one histogram, as published."""
MODES = "smaller of P < 0.2 and P > 0.8"
"""Share of views in the smaller of two modes."""
TEMPERATURE = 0.1
BINS = 24
_BATCH = 128
_LOUDER = 4


def trained_views(trained: Trained) -> Augmentation:
    """Return the views of a run, as training left them."""
    assert trained.folder is not None
    return run_views(trained.folder).to(trained.device)


def draw(
    views: Augmentation, images: Dataset, rows: np.ndarray, count: int, device: torch.device
) -> tuple[Tensor, list[Tensor], Tensor]:
    """Return images [B, C, H, W] of `rows`, `count` views of each, and the mask of the object."""
    x = image_batch(images.images[rows], device)
    mask = torch.from_numpy(images.masks(rows)).permute(0, 3, 1, 2).to(device)
    generator = Generator(device).manual_seed(int(rows[0]))
    with torch.no_grad():
        return x, views(x, count, generator, AugmentContext(mask=mask)), mask


def _batches(images: Dataset, most: int) -> Iterator[np.ndarray]:
    rows = np.arange(min(most, len(images)))
    return (rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH))


def changes(trained: Trained) -> Measured:
    """Return the mean absolute change of pixels on and off the planted object, in percent."""
    images, views = trained.test_set().first_read(), trained_views(trained)
    sums = torch.zeros(2, 2, dtype=torch.float64)  # change and pixels, on and off the object
    for rows in _batches(images, 512):
        x, (view,), mask = draw(views, images, rows, 1, trained.device)
        change = (view - x).abs().mean(1, keepdim=True)
        for part, of in zip(sums, (mask, ~mask), strict=True):
            part += torch.stack([(change * of).sum(), of.sum()]).double().cpu()
    on, off = (100 * sums[:, 0] / sums[:, 1]).tolist()
    return {"change of the object, %": round(on, 3), "change elsewhere, %": round(off, 3)}


def losses(trained: Trained) -> Measured:
    """Return SimCLR's loss under the views of the run, before and after their training."""
    assert trained.folder is not None
    assert trained.projected is not None
    images = trained.test_set().first_read()
    policies = {
        "loss under trained views": trained_views(trained),
        "loss under untrained views": untrained_views(trained.folder).to(trained.device),
    }
    measured = {}
    for name, policy in policies.items():
        values = []
        for rows in _batches(images, 512):
            _, pair, _ = draw(policy, images, rows, 2, trained.device)
            with torch.no_grad():
                z1, z2 = (trained.projected(view) for view in pair)
            values.append(float(nt_xent(z1, z2, temperature=TEMPERATURE)))
        measured[name] = round(mean(values), 4)
    return {**measured, "loss at chance": round(float(np.log(2 * _BATCH - 1)), 4)}


def judge(trained: Trained, task: str) -> nn.Module:
    """Return a linear probe on features before pooling of plain images: x -> logits [B, K]."""
    images, encoder = trained.train_set().first_read(), FeatureMap(trained.encoder)
    h = extract(encoder, images.inputs)
    y = {task: torch.from_numpy(images.labels[task]).to(h.device)}
    count = len(images.classes[task])
    probe = fit_linear(h, y, h, y, classes={task: count}, seed=trained.seed)[task]
    layer = nn.Linear(h.shape[1], count)
    layer.weight.data, layer.bias.data = probe.weight, probe.bias
    return nn.Sequential(encoder, layer.to(trained.device)).eval()


def probabilities(by: nn.Module, views: Augmentation, trained: Trained, task: str) -> Tensor:
    """Return P(correct class) of `VIEWS` views of test images, one of each."""
    images, found = trained.test_set().first_read(), []
    for rows in _batches(images, VIEWS):
        x, (view,), _ = draw(views, images, rows, 1, trained.device)
        with torch.no_grad():
            share = by(view).double().softmax(1).cpu()
        found.append(share[torch.arange(len(x)), torch.from_numpy(images.labels[task][rows])])
    return torch.cat(found)


def of_probabilities(p: Tensor) -> Measured:
    """Return the mean of P(correct), of its smaller mode, and the bimodality coefficient."""
    low, high = ((p < 0.2).double().mean(), (p > 0.8).double().mean())
    return {
        "mean P(correct)": round(float(p.mean()), 4),
        MODES: round(float(min(low, high)), 4),
        "bimodality": round(bimodality_coefficient(p), 4),
    }


def histograms(panels: Mapping[str, tuple[Tensor, Tensor]]) -> Figure:
    """Draw P(correct) under views, filled, and on plain images, an outline; one panel for each."""
    figure = Figure(figsize=(3.4 * len(panels), 2.8), layout="constrained")
    edges = np.linspace(0, 1, BINS + 1)
    for axes, (title, (under, plain)) in zip(
        figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
    ):
        axes.stairs(np.histogram(under, edges)[0], edges, fill=True, color="#0072b2")
        axes.stairs(np.histogram(plain, edges)[0], edges, color="#555555")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("P(correct object)")
        axes.spines[["top", "right"]].set_visible(False)
    figure.supylabel("views; outline: plain images", fontsize=10)
    return figure


def gallery(rows: Iterable[tuple[str, Trained]], *, images: int = 3) -> Figure:
    """Draw test images with two views of each and what the first one changes."""
    rows = list(rows)
    names = ("image", "view", "view", f"change x {_LOUDER}")
    figure = Figure(figsize=(1.0 * 4 * images + 1.2, 1.08 * len(rows) + 0.3), layout="constrained")
    panels = figure.subplots(len(rows), 4 * images, squeeze=False)
    for line, (name, trained) in zip(panels, rows, strict=True):
        views, shown_images = trained_views(trained), trained.test_set().first_read()
        x, (one, two), _ = draw(views, shown_images, np.arange(images), 2, trained.device)
        shown = torch.stack([x, one, two, 0.5 + _LOUDER * (one - x)], 1).flatten(0, 1)
        for axes, pixels in zip(line, shown.clamp(0, 1).permute(0, 2, 3, 1).cpu(), strict=True):
            axes.imshow(pixels.numpy(), interpolation="nearest")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
        line[0].set_ylabel(name.replace(", ", ",\n"), fontsize=8)
    for axes, title in zip(panels[0], names * images, strict=True):
        axes.set_title(title, fontsize=8)
    return figure


def _increase(runs: SeedRuns) -> list[float]:
    """Return how much the training of each viewmaker raises the loss under its views."""
    return [
        runs[arm]["loss under trained views"] - runs[arm]["loss under untrained views"]
        for arm in VIEWMAKERS
    ]


def _on_the_object(runs: SeedRuns) -> float:
    """Return the change of a pixel of the object, relative to others, minus 1."""
    arms = [runs[arm] for arm in VIEWMAKERS]
    return mean(a["change of the object, %"] / a["change elsewhere, %"] for a in arms) - 1


def _of_views(trained: Trained) -> Measured:
    return {} if trained.folder is None else {**changes(trained), **losses(trained)}


VIEWMAKERS = tuple(f"{name}, {LEARNED}" for name in PLANTS)
F1 = Study(
    id="FD-F1",
    question="What do trained viewmakers change, and what does it do to the loss?",
    published="views stochastically change the planted object and other features",
    scales={"tiny": replace(TINY, arms=1), "cpu": CPU, "gpu": GPU},
    arms={k: arm for k, arm in T1.arms.items() if k.startswith(PLANTS) and EXPERT not in k},
    gate=GATE,
    measure=lambda trained: {**_of_views(trained), **scored(trained)},
    validate=chosen,
    figure=lambda trained: gallery(
        (k, t) for k, t in trained.items() if t.folder and RATE not in k
    ),
    findings=(
        Finding(
            id="FD-F1",
            criterion="a pixel of the object is changed at least 10 % more than one elsewhere, "
            "mean of shapes, digits and letters",
            value=_on_the_object,
            at_least=0.1,
            trained=VIEWMAKERS,
        ),
        Finding(
            id="FD-3 minimax",
            criterion="views of the trained viewmaker have a loss at least 0.1 above those of an "
            "untrained one, mean of shapes, digits and letters; the encoder keeps it 0.3 below "
            "chance",
            value=lambda runs: mean(_increase(runs)),
            at_least=0.1,
            trained=VIEWMAKERS,
            valid=lambda runs: all(
                runs[arm]["loss under trained views"] < runs[arm]["loss at chance"] - 0.3
                for arm in VIEWMAKERS
            ),
        ),
    ),
    conclusion=(
        "Of 30 epochs on 1,000 images of 16 pixels. A pixel of a shape or of a digit is changed "
        "more than one elsewhere; of letters, which have twice the budget, it is not. The loss "
        "under the trained views is above that under untrained ones with every seed. With letters "
        "it is near chance or above it in two of five seeds: there the encoder does not follow, so "
        "that the second criterion is not decided."
    ),
)

JUDGE, OTHER = "judge", "other encoder"
FIXED = DATA["shapes"].removesuffix(":fresh")
"""The same shapes at each read, as methods that use labels need them."""
POLICIES = {LEARNED: EXPERT, EXPERT: LEARNED}
"""A policy -> the other one."""
JUDGES = tuple(f"shapes, {policy}" for policy in POLICIES)


def _at_best(trained: Mapping[str, Trained]) -> dict[str, Trained]:
    """Return the judge, and the encoder of each policy at its best learning rate."""
    class_ = f"class {PROBE}"
    best = {name: at_best_rate(trained, name, chosen, class_) for name in JUDGES}
    return best | {JUDGE: trained[JUDGE]}


def _policy(trained: Mapping[str, Trained], policy: str) -> Augmentation:
    return build_views(EXPERT) if policy == EXPERT else trained_views(trained[f"shapes, {policy}"])


def _judged(arms: Mapping[str, Trained]) -> Measured:
    """Return P(correct shape) under the views of both policies, by three judges."""
    trained = _at_best(arms)
    by = {name: judge(t, "shapes") for name, t in trained.items()}
    images = trained[JUDGE]

    def p(judge: str, views: Augmentation) -> Tensor:
        return probabilities(by[judge], views, images, "shapes")

    measured: Measured = {f"plain, {name}: P": float(p(name, Identity()).mean()) for name in by}
    for policy, other in POLICIES.items():
        views = _policy(trained, policy)
        judges = {JUDGE: JUDGE, "own encoder": f"shapes, {policy}", OTHER: f"shapes, {other}"}
        for name, arm in judges.items():
            judged = of_probabilities(p(arm, views))
            measured |= {f"{policy}, {name}: {kind}": value for kind, value in judged.items()}
    return {name: round(value, 4) for name, value in measured.items()}


def _draw_judged(arms: Mapping[str, Trained]) -> Figure:
    trained = _at_best(arms)
    by, images = judge(trained[JUDGE], "shapes"), trained[JUDGE]
    plain = probabilities(by, Identity(), images, "shapes")
    return histograms(
        {
            policy: (probabilities(by, _policy(trained, policy), images, "shapes"), plain)
            for policy in POLICIES
        }
    )


def _more_in_the_smaller_mode(judge: str) -> Callable[[SeedRuns], float]:
    """Return by how many percent more of the viewmaker's views are in the smaller of two modes."""

    def value(runs: SeedRuns) -> float:
        share = {policy: runs[TOGETHER][f"{policy}, {judge}: {MODES}"] for policy in POLICIES}
        return float(100 * (share[LEARNED] - share[EXPERT]))

    return value


C2 = Study(
    id="FD-C2",
    question="Do views hide the planted object in some images and leave it in others?",
    published="two modes of P(correct object) for viewmaker views, not for expert ones",
    scales={"tiny": TINY, "cpu": CPU, "gpu": GPU},
    arms={
        **{name: arm for name, arm in T1.arms.items() if name.startswith("shapes, ")},
        JUDGE: Arm(
            data=FIXED,
            settings={"recipe": "default", "method": "supervised", "views": "none"},
            epochs=10,
        ),
    },
    gate=GATE,
    measure=scored,
    validate=chosen,
    together=_judged,
    figure=_draw_judged,
    findings=(
        Finding(
            id="FD-C.2 other judge",
            criterion="the smaller mode of P(correct shape), below 0.2 or above 0.8, has at least "
            "5 % more of the viewmaker's views than of expert ones, by the other policy's encoder",
            value=_more_in_the_smaller_mode(OTHER),
            at_least=5.0,
            trained=JUDGES,
        ),
        Finding(
            id="FD-C.2 supervised judge",
            criterion="the same, by a supervised judge",
            value=_more_in_the_smaller_mode(JUDGE),
            at_least=5.0,
            trained=JUDGES,
            valid=lambda runs: runs[TOGETHER][f"plain, {JUDGE}: P"] > 0.8,
        ),
        Finding(
            id="FD-C.2 own judge",
            criterion="P(correct shape) under the views of either policy is at least 0.02 higher "
            "by the encoder trained with them than by the other",
            value=lambda runs: min(
                runs[TOGETHER][f"{policy}, own encoder: mean P(correct)"]
                - runs[TOGETHER][f"{policy}, {OTHER}: mean P(correct)"]
                for policy in POLICIES
            ),
            at_least=0.02,
            trained=JUDGES,
        ),
    ),
    conclusion=(
        "Of 30 epochs on 1,000 images of 16 pixels. A network that was supervised on shapes finds "
        "them in most of the viewmaker's views and in fewer than half of the expert ones, so that "
        "expert views have the larger second mode, the opposite of what is published. The encoders "
        "of the two policies give the correct shape a probability of about 0.4 on plain images: by "
        "the one of the other policy the runs cannot tell, and it is not so that both encoders are "
        "better under the views that they were trained with."
    ),
)

STUDIES = [F1, C2]
