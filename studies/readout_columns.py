"""How the columns of the wide readout are best chosen."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from studies.readout import CPU, FEW, READOUT_FEW, READOUT_FLOORS, Pair, probed, probed_with
from studies.study import Measured, cpu_study
from studies.trained import Sets, Trained
from widefield.data import Dataset
from widefield.encoders import Readout, stage_maps
from widefield.encoders.patches import fit_patch_filters, grid_of, patch_features
from widefield.encoders.readout import Source, source_features
from widefield.encoders.readout_fit import EXTRA, inverse_deviation, leading_directions
from widefield.encoders.stages import INPUT
from widefield.evaluation.wide import fit_on_dataset
from widefield.probes.features import image_batch

STEPS, PENALTIES = 200, torch.logspace(-1, -4, 25)


def reductions(trained: Trained) -> Measured:
    """Return the accuracy of each way to choose columns beside the pooled features.

    - residual PCA: the readout as it is;
    - residuals: the same directions, but the residuals along them, with variance 1;
    - PCA: the leading directions of each source itself;
    - random: random directions of each source;
    - group lasso: columns of the sources, chosen by the labels of the task (Yuan & Lin 2006): the
      smallest penalty on the norm of a column's weights at which at most 384 columns have any;
    - all: no reduction.
    """
    encoder, sets = probed_with(trained)
    readout = fit_on_dataset(encoder, sets[0], device=CPU)
    with torch.no_grad():
        raw = [_sources(encoder, d, readout) for d in sets]
    h = standardized(raw[0][0], raw[1][0])
    sources = [standardized(*pair) for pair in zip(raw[0][1], raw[1][1], strict=True)]
    widths = [source.width for source in readout.config.sources]
    found = {
        "pooled": h,
        "residual PCA": (readout(*raw[0]), readout(*raw[1])),
        "residuals": beside(h, sources, widths, residuals=True),
        "PCA": along(h, sources, widths, leading_directions),
        "random": along(h, sources, widths, random_directions),
        "all": joined([h, *sources]),
    }
    accuracy = {name: probed(pair, sets) for name, pair in found.items()}
    accuracy["group lasso"] = {
        task: probed(by_group_lasso(h, sources, torch.from_numpy(y), len(names)), sets)[task]
        for (task, y), names in zip(sets[0].labels.items(), sets[0].classes.values(), strict=True)
    }
    return {f"{task}, {name}, %": v for name, a in accuracy.items() for task, v in a.items()}


def _sources(encoder: nn.Module, dataset: Dataset, readout: Readout) -> tuple[Tensor, list[Tensor]]:
    """Return pooled features and the columns of each source of a readout."""
    batches = torch.split(image_batch(dataset.images, CPU), 250)
    found = (source_features(encoder, x, readout.config.sources) for x in batches)
    h, sources = zip(*((h, readout.with_patches(s)) for h, s in found), strict=True)
    return torch.cat(h), [torch.cat(parts) for parts in zip(*sources, strict=True)]


def standardized(fit: Tensor, scored: Tensor) -> Pair:
    """Return columns with mean 0 and variance 1 on the first; constant ones become 0."""
    mean, scale = fit.mean(0), inverse_deviation(fit.std(0))
    return (fit - mean) * scale, (scored - mean) * scale


def beside(h: Pair, sources: list[Pair], widths: list[int], *, residuals: bool = False) -> Pair:
    """Return h and each source along the leading directions of what the columns so far leave of it.

    With `residuals`, what is left itself is taken along them.
    """
    output = h
    for source, width in zip(sources, widths, strict=True):
        solution = torch.linalg.lstsq(output[0], source[0]).solution
        left = source[0] - output[0] @ solution, source[1] - output[1] @ solution
        v = leading_directions(left[0], width)
        kept = left if residuals else source
        output = joined([output, standardized(kept[0] @ v, kept[1] @ v)])
    return output


def along(
    h: Pair, sources: list[Pair], widths: list[int], directions: Callable[..., Tensor]
) -> Pair:
    """Return h and each source along `directions(source, width)`, standardized."""
    parts = [h]
    for source, width in zip(sources, widths, strict=True):
        v = directions(source[0], width)
        parts.append(standardized(source[0] @ v, source[1] @ v))
    return joined(parts)


def random_directions(source: Tensor, width: int) -> Tensor:
    """Return Gaussian directions [K, width]."""
    return torch.randn(source.shape[1], width, generator=torch.Generator().manual_seed(0))


def by_group_lasso(h: Pair, sources: list[Pair], y: Tensor, classes: int) -> Pair:
    """Return h and the columns of the sources that a group lasso chooses for labels y[n]."""
    columns = joined(sources)
    weight, chosen = torch.zeros(columns[0].shape[1], classes), torch.arange(0)
    for penalty in PENALTIES:
        weight = group_lasso(columns[0], y, weight, float(penalty))
        norms = weight.norm(dim=1)
        if int((norms > 0).sum()) > EXTRA:
            break
        chosen = norms.nonzero()[:, 0]
    return joined([h, (columns[0][:, chosen], columns[1][:, chosen])])


def group_lasso(x: Tensor, y: Tensor, weight: Tensor, penalty: float) -> Tensor:
    """Return argmin_W CE(x W + b, y) + penalty sum_j |W_j|, W_j the weights of column j, [K, C].

    Proximal gradient steps with momentum (FISTA, Beck & Teboulle 2009), from `weight`.
    """
    target = functional.one_hot(y, weight.shape[1]).float()
    bias = target.mean(0).clamp_min(1e-6).log()
    rate = 2 * len(x) / float(torch.linalg.matrix_norm(x, 2)) ** 2
    ahead, momentum = weight, 1.0
    for _ in range(STEPS):
        error = (x @ ahead + bias).softmax(1) - target
        moved = ahead - rate * (x.T @ error) / len(x)
        norm = moved.norm(dim=1, keepdim=True)
        shrunk = moved * (1 - rate * penalty / norm.clamp_min(1e-12)).clamp_min(0)
        faster = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = shrunk + (momentum - 1) / faster * (shrunk - weight)
        weight, momentum = shrunk, faster
    return weight


def joined(parts: list[Pair]) -> Pair:
    """Return all columns side by side."""
    fit, scored = zip(*parts, strict=True)
    return torch.cat(fit, dim=1), torch.cat(scored, dim=1)


def by_sources(trained: Trained) -> Measured:
    """Return the accuracy of each choice of sources, with as many directions in all.

    - stages: all stages but the last, and the input;
    - patches: the same, and filters of patches of the input;
    - two stages: the two stages before the last, the input and patches, as the readout is;
    - plain patches: the same, with Gaussian filters of patches that are not whitened;
    - no stages: the input and patches.
    """
    encoder, sets = probed_with(trained)
    h, stages, pixels = _all_stages(encoder, sets)
    shape = pixels[2]
    filters, offset = fit_patch_filters(pixels[0].reshape(-1, *shape))
    plain = torch.randn(filters.shape, generator=torch.Generator().manual_seed(0))
    x = standardized(pixels[0], pixels[1])
    patches = _patches((pixels[0], pixels[1]), shape, filters, offset)
    chosen = {
        "stages": [*stages, x],
        "patches": [*stages, x, patches],
        "two stages": [*stages[:2], x, patches],
        "plain patches": [*stages[:2], x, _patches(x, shape, plain, torch.zeros(len(plain)))],
        "no stages": [x, patches],
    }
    d = h[0].shape[1]
    extra = min(EXTRA, max(512, 2 * d) - d)
    found = {"pooled": probed(h, sets)}
    for name, sources in chosen.items():
        widths = [extra // len(sources)] * len(sources)
        found[name] = probed(beside(h, sources, widths), sets, pooled=d)
    return {f"{task}, {name}, %": v for name, a in found.items() for task, v in a.items()}


def _all_stages(
    encoder: nn.Module, sets: Sets
) -> tuple[Pair, list[Pair], tuple[Tensor, Tensor, tuple[int, ...]]]:
    """Return pooled features, all stages but the last, backwards, and the input with its shape."""
    with torch.no_grad():
        maps = stage_maps(encoder, image_batch(sets[0].images[:2], CPU))
        inner = [name for name in maps if name != INPUT and "." not in name][-2::-1]
        sides = {**dict.fromkeys(inner, 4), INPUT: 32}
        sources = [Source(stage=name, side=side, width=1) for name, side in sides.items()]
        batches = (torch.split(image_batch(d.images, CPU), 250) for d in sets)
        fit, scored = ([source_features(encoder, x, sources) for x in part] for part in batches)
    h = standardized(*(torch.cat([h for h, _ in part]) for part in (fit, scored)))
    columns = [
        (torch.cat([s[i] for _, s in fit]), torch.cat([s[i] for _, s in scored]))
        for i in range(len(sources))
    ]
    channels, height, width = maps[INPUT].shape[1:]
    shape = (channels, *grid_of(height, width, 32))
    return h, [standardized(*pair) for pair in columns[:-1]], (*columns[-1], shape)


def _patches(pixels: Pair, shape: tuple[int, ...], filters: Tensor, offset: Tensor) -> Pair:
    fit, scored = (
        torch.cat([patch_features(x.reshape(-1, *shape), filters, offset, 4) for x in part])
        for part in (torch.split(p, 250) for p in pixels)
    )
    return standardized(fit, scored)


READOUT_REDUCTIONS = replace(
    READOUT_FEW,
    id="readout-reductions",
    arms={
        name: replace(arm, about={**arm.about, "choice": True})
        for name, arm in FEW.items()
        if arm.settings is not None
    },
    question="How are the columns of the wide readout best chosen from earlier stages?",
    scales={
        "cpu": replace(READOUT_FEW.scales["cpu"], seeds=(0,), probed=2000),
    },
    measure=reductions,
    conclusion=(
        "Scored on further images of the training file; for sounds, on others than the tests. "
        "Residuals themselves are worse than the sources along the same directions. The readout is "
        "nowhere more than two points below another choice; PCA without residuals and random "
        "directions are, random ones by five points of the digit and six of a class. A group "
        "lasso, which knows the labels, is better by up to two points for some tasks, and worse "
        "for the digit."
    ),
)

READOUT_SOURCES = cpu_study(
    id="readout-sources",
    question="Which stages, and which features of the input, belong in the wide readout?",
    tiny="its measures take a minute",
    cpu=replace(READOUT_FLOORS.scales["cpu"], seeds=(0,)),
    arms={
        name: replace(arm, about={**arm.about, "choice": True})
        for name, arm in READOUT_FLOORS.arms.items()
        if arm.settings is not None or (not arm.pixels and arm.about["encoder"] == "resnet-tiny")
    },
    measure=by_sources,
    conclusion=(
        "Scored on further images of the training file, photographs on their test file, recordings "
        "on those that no probe is fitted on. Filters of patches raise the planted shape by "
        "24 to 28 points and the place of the square by 6 to 50, and lower nothing by more than a "
        "point. Filters that are not whitened nearly leave the shape as it was. "
        "With patches, the two stages before the last are within two points of all of them, "
        "better as often as worse, so the readout takes these two. Without stages the class falls "
        "by up to four points with residual networks, most with those that are trained; with "
        "transformers it hardly changes or rises."
    ),
)

STUDIES = [READOUT_REDUCTIONS, READOUT_SOURCES]
