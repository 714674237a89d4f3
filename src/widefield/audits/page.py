"""An audit as one page: the verdicts in words, what to try, then figures that explain them."""

import numpy as np
import torch
from torch import Tensor, nn

import widefield
from widefield.audits.found import Audit
from widefield.audits.planting import GRADES, NEIGHBOURS
from widefield.audits.read import Pair
from widefield.audits.verdict import TaskAudit
from widefield.diagnose import (
    DIAGNOSTICS,
    activation_maximisation,
    colour_axes,
    firing_rates,
    nearest_neighbours,
    singular_values,
    tsne_map,
)
from widefield.report import Bars, Figure, Gallery, Lines, Places, Report, Verdict
from widefield.train.hardware import choose_device, machine
from widefield.workflows.frozen import Frozen

MAP_IMAGES, GRID_IMAGES, PICTURES, FIRING_IMAGES = 300, 6, 8, 64
_RISE = 0.02
"""Least rise of a learned share over the second half of training that counts as one."""
_WATCHED = 12
"""Most layers whose firing is shown."""


def audit_page(found: Audit, frozen: Frozen, pair: Pair, h: Tensor, *, seed: int) -> Report:
    """The report of `found`; h [n, D] are the features of the images scored."""
    encoder = frozen.built_for(pair.test.images[:1])
    figures = [
        *_over_training(found),
        *_ease(found),
        *_trained(found),
        _spectrum(h),
        _neighbours(pair, h),
        *([] if encoder is None else _inside(encoder, pair, h, seed=seed)),
        *_map(pair, h, seed=seed),
    ]
    return Report(
        title=f"widefield audit of {found.encoder}",
        summary=summary(found),
        notes=[f"Note: {note}." for note in found.notes],
        verdicts=[
            Verdict(
                task=task,
                encoder=name,
                word=one.verdict,
                learned=_interval(one),
                numbers=_numbers(one),
            )
            for task in found.tasks
            for name, row in {found.encoder: found.tasks, **found.compared}.items()
            if task in row
            for one in (row[task],)
        ],
        next_steps=advice(found, frozen),
        figures=figures,
        facts={
            "fitted on": f"{found.fitted_on}, {found.examples[0]} images",
            "scored on": f"{found.scored_on}, {found.examples[1]} images",
            **{f"plant {name}": one.line() for name, one in found.plants.items()},
            **{f"trained with {one.plant}": one.line() for one in found.trained},
            **{
                f"agrees with {name}": f"{100 * share:.0f} % by linear CKA of the features"
                for name, share in found.similarity.items()
            },
            **{
                name.replace("_", " "): _measured(name, value)
                for name, value in found.features.items()
            },
            "seed": str(seed),
            "widefield": widefield.__version__,
            **machine(choose_device("auto")),
        },
    )


def _measured(name: str, value: float | None) -> str:
    number = "not defined here" if value is None else f"{value:.3g}"
    return f"{number}: {DIAGNOSTICS[name].meaning}"


def summary(found: Audit) -> str:
    """Which tasks are learned, weakened and suppressed, in one sentence an encoder."""
    own = _summed(found.tasks)
    if not found.compared:
        return f"{own[:1].upper()}{own[1:]}."
    rows = {found.encoder: found.tasks, **found.compared}
    return " ".join(f"{name}, {_summed(row)}." for name, row in rows.items())


def _summed(tasks: dict[str, TaskAudit]) -> str:
    said = []
    for word in ("learned", "weakened", "suppressed", "not separable"):
        those = [task for task, one in tasks.items() if one.verdict == word]
        if those:
            said.append(f"{word}: {', '.join(those)}")
    return "; ".join(said)


def advice(found: Audit, frozen: Frozen) -> tuple[str, ...]:
    """What to try next: views, method, head, more training."""
    behind = [t for t, one in found.tasks.items() if one.verdict in ("suppressed", "weakened")]
    unclear = [t for t, one in found.tasks.items() if one.verdict == "not separable"]
    steps = []
    if behind:
        recipe = None if frozen.run is None else frozen.run.recipe()
        views = "gentle" if recipe is None or recipe.views != "gentle" else "expert"
        method = "s-diet" if recipe is None or recipe.method != "s-diet" else "simclr"
        steps += [
            f"Views: features that views change are dropped. Train with `--views {views}` and put "
            f"that run beside this one with `--compare`, looking at {_listed(behind)}.",
            f"Method: `--method {method}` weighs features differently.",
            "Head: a larger `--logit-scale` asks for finer differences between images, and larger "
            "batches for more of them.",
            _more_training(found),
        ]
    if unclear:
        steps.append(
            f"For {_listed(unclear)} floor and ceiling nearly meet: score on more images, or "
            "choose data in which raw pixels tell less."
        )
    if not behind and not unclear:
        steps.append("Nothing asked about is missing: plant harder features with `--plant`.")
    return tuple(steps)


def _more_training(found: Audit) -> str:
    if len(found.checkpoints) < 2:
        return (
            "More training: `--all-checkpoints` shows whether the learned share was still rising; "
            "if so, raise `--epochs`."
        )
    end = max(found.checkpoints)
    begin = max((epoch for epoch in found.checkpoints if 2 * epoch <= end), default=0)
    before = found.checkpoints.get(begin, next(iter(found.checkpoints.values())))
    last = found.checkpoints[end]
    rising = [task for task in last if _share(last[task]) > _share(before[task]) + _RISE]
    if rising:
        return (
            f"More training: {_listed(rising)} rose over the second half of it; raise `--epochs`."
        )
    return "More training: nothing rose over the second half of it, so more would hardly help."


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _over_training(found: Audit) -> list[Figure]:
    if not found.checkpoints:
        return []
    epochs = list(found.checkpoints)
    tasks = list(found.checkpoints[epochs[0]])[:4]
    return (
        [
            Lines(
                title="When was it learned?",
                how="Learned share of each task at every checkpoint. A curve that rises and falls "
                "again was suppressed by what came later.",
                series={
                    task: (epochs, [_share(found.checkpoints[epoch][task]) for epoch in epochs])
                    for task in tasks
                },
                x_label="epoch",
                y_label="learned",
                y_range=(0, 1.03),
            )
        ]
        if tasks
        else []
    )


def _ease(found: Audit) -> list[Figure]:
    if not found.plants:
        return []
    grades = range(1, len(next(iter(GRADES.values()))) + 1)
    return [
        Lines(
            title="How easy must a planted feature be?",
            how="Learned share of each plant, from small, faint and colourful (1) to large, "
            "opaque, white and always at one place (5). The sooner a curve rises, the better the "
            "encoder sees. Gaps cannot be told: too faint even for the ceiling, or plain to raw "
            "pixels.",
            series={
                name: (list(grades), [_share(grade) for grade in one.grades])
                for name, one in found.plants.items()
            },
            x_label="ease",
            y_label="learned",
            y_range=(0, 1.03),
        ),
        Lines(
            title="Do plants hide the images?",
            how=f"Share of an image's {NEIGHBOURS} nearest neighbours that stay the same when "
            "every image gets a plant. Low where the encoder looks at plants alone.",
            series={name: (list(grades), one.kept) for name, one in found.plants.items()},
            x_label="ease",
            y_label="neighbours kept",
            y_range=(0, 1.03),
        ),
    ]


def _trained(found: Audit) -> list[Figure]:
    return [
        Bars(
            title=f"What does {one.plant} do to training?",
            how=f"Learned share after {one.epochs} epochs of {one.method}, on the images as they "
            "are and with the plant in each. A task that loses by the plant is suppressed by it.",
            shares={
                f"{task}, {how}": verdict.learned
                for task in one.planted
                for how, row in (("as they are", one.without), ("planted", one.planted))
                for verdict in (row[task],)
                if verdict.learned is not None
            },
        )
        for one in found.trained
    ]


def _spectrum(h: Tensor) -> Figure:
    sigma = singular_values(h).cpu()
    sigma = sigma[sigma > 0]
    relative = (sigma / sigma[0]).tolist() if len(sigma) else [1.0]
    return Lines(
        title="How many directions do the features use?",
        how="Singular values of the centred features, as shares of the largest. A line that falls "
        "off early says that a few directions carry everything; a flat one, that many do.",
        series={"singular value": (list(range(1, len(relative) + 1)), relative)},
        x_label="direction",
        y_label="share of the largest",
        logarithmic=True,
    )


def _neighbours(pair: Pair, h: Tensor) -> Figure:
    k = min(7, len(h) - 1)
    rows = np.linspace(0, len(h) - 1, min(GRID_IMAGES, len(h)), dtype=int)
    near = nearest_neighbours(h, k).cpu().numpy()
    images = pair.test.images
    return Gallery(
        title="Which images look alike to it?",
        how="On the left an image, framed; beside it the images nearest to it in the encoder's "
        "eyes. What they share is what it sees.",
        rows={pair.test.paths[row]: [images[row], *(images[i] for i in near[row])] for row in rows},
        first_apart=True,
    )


def _inside(encoder: nn.Module, pair: Pair, h: Tensor, *, seed: int) -> list[Figure]:
    """How often layers fire, and what the busiest features want to see."""
    device = choose_device("auto")
    encoder = encoder.to(device)
    pixels = torch.from_numpy(np.array(pair.test.images[:FIRING_IMAGES])).to(device)
    x = pixels.permute(0, 3, 1, 2).float() / 255
    found: list[Figure] = []
    try:
        rates = firing_rates(encoder, x)
    except ValueError:  # no activation is a module of its own, so there is nothing to show
        rates = {}
    if rates:
        chosen = np.unique(np.linspace(0, len(rates) - 1, _WATCHED).round().astype(int))
        names = [list(rates)[i] for i in chosen]
        found.append(
            Bars(
                title="How often do neurons fire?",
                how="Share of images on which a neuron is active, mean over each layer, first to "
                "last. Sparse layers hold features that few images have.",
                shares={
                    name.removeprefix("backbone."): float(rates[name].mean()) for name in names
                },
            )
        )
    units = h.std(0).topk(min(PICTURES, h.shape[1])).indices.tolist()
    pictures = activation_maximisation(
        encoder, units, shape=(x.shape[1], x.shape[2], x.shape[3]), colour=colour_axes(x), seed=seed
    )
    shown = (255 * pictures).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    most = h[:, units].topk(min(4, len(h)), dim=0).indices.cpu().numpy()
    found.append(
        Gallery(
            title="What do its features want to see?",
            how="Framed, an image made to excite one of the features that vary most; beside it "
            "the real images that excite that feature most.",
            rows={
                f"feature {unit}": [shown[i], *(pair.test.images[row] for row in most[:, i])]
                for i, unit in enumerate(units)
            },
            first_apart=True,
        )
    )
    return found


def _map(pair: Pair, h: Tensor, *, seed: int) -> list[Figure]:
    if len(h) < 4:
        return []
    rows = np.linspace(0, len(h) - 1, min(MAP_IMAGES, len(h)), dtype=int)
    task = next(iter(pair.test.labels), None)
    groups = [0] * len(rows) if task is None else pair.test.labels[task][rows].tolist()
    names = [pair.test.paths[row] for row in rows]
    if task is not None:
        names = [
            f"{pair.test.classes[task][group]}: {name}"
            for group, name in zip(groups, names, strict=True)
        ]
    return [
        Places(
            title="A map of the images",
            how="Images near each other look alike to the encoder (t-SNE); point at a dot to see "
            "its image. Distances between far groups mean nothing"
            + (
                "."
                if task is None
                else f"; colours stand for the classes of `{task}`, and repeat after four."
            ),
            places=tsne_map(h[torch.from_numpy(rows).to(h.device)], seed=seed).numpy(),
            images=pair.test.images[rows],
            names=names,
            groups=groups,
        )
    ]


def _share(one: TaskAudit) -> float:
    return float("nan") if one.learned is None else one.learned


def _interval(one: TaskAudit) -> tuple[float, float, float] | None:
    if one.learned is None or one.learned_low is None or one.learned_high is None:
        return None
    return one.learned, one.learned_low, one.learned_high


def _numbers(one: TaskAudit) -> str:
    floor = "raw pixels" if one.floor_of == "pixels" else "the network untrained"
    return (
        f"probe {100 * one.accuracy:.1f} % [{100 * one.low:.1f}, {100 * one.high:.1f}], nearest "
        f"neighbours {100 * one.knn:.1f} %; floor {100 * one.floor:.1f} % ({floor}), ceiling "
        f"{100 * one.ceiling:.1f} %; {one.classes} classes"
    )
