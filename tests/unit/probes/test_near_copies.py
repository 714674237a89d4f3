"""Near-copies are found across a split, and ordinary examples are not taken for them."""

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from made_scenes import KINDS, scenes
from widefield.probes import pixels
from widefield.probes.cross_fit import cross_fit, knn_hits
from widefield.probes.near_copies import Sketches, copy_groups, has_near_copy

RNG = np.random.default_rng


def halves(x: NDArray[np.uint8]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which of a random fifth have near-copies among the others, and all groups."""
    x = x[RNG(0).permutation(len(x))]
    count = len(x) // 5
    return has_near_copy(Sketches.of(x[:count]), Sketches.of(x[count:])), copy_groups(x)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_resembling_images_are_found(kind: str) -> None:
    made = scenes(kind)
    found, groups = halves(made["x"])
    assert found.mean() > 0.8
    assert 25 <= len(np.unique(groups)) < 60
    one_each = made["x"][::8]  # the control: one image of each scene
    found, groups = halves(np.concatenate([one_each, scenes(kind, each=1, groups=90, seed=2)["x"]]))
    assert found.sum() == 0
    assert len(np.unique(groups)) == len(groups)


def test_equal_flat_images_share_a_group() -> None:
    """Black frames have no contrast to compare; a gray one is another image."""
    x = photos(20)
    x[[3, 8, 11]], x[15] = 0, 128
    groups = copy_groups(x)
    assert len(set(groups[[3, 8, 11]].tolist())) == 1
    assert len(np.unique(groups)) == 18


def photos(n: int) -> NDArray[np.uint8]:
    return scenes("frames", groups=n, each=1)["x"]


def jpeg(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=70)
    return np.asarray(Image.open(file))


@pytest.mark.parametrize("change", ["jpeg", "noise", "bright", "cut", "same"])
def test_a_few_changed_copies_are_found(change: str) -> None:
    x = photos(120)
    source = x[:12]
    copies = {
        "jpeg": np.stack([jpeg(image) for image in source]),
        "noise": np.clip(source + RNG(1).normal(0, 8, source.shape), 0, 255).astype(np.uint8),
        "bright": np.clip(source * 1.08, 0, 255).astype(np.uint8),
        "cut": np.stack([np.asarray(Image.fromarray(i[1:, 1:]).resize((16, 16))) for i in source]),
        "same": source,
    }[change]
    scored = np.concatenate([copies, photos(180)[120:]])
    found = has_near_copy(Sketches.of(scored), Sketches.of(x))
    assert found[:12].sum() >= 11
    assert found[12:].sum() == 0
    groups = copy_groups(np.concatenate([x, copies]))
    assert (groups[:12] == groups[120:]).sum() >= 11


def shapes(n: int) -> NDArray[np.uint8]:
    """Return disks on plain ground: seven numbers describe each image.

    On fewer pixels many disks would have the same ones, and differ in color alone, as copies do.
    """
    rng, (v, u) = RNG(0), np.mgrid[:16:0.25, :16:0.25]
    images = []
    for _ in range(n):
        x, y, r = rng.uniform(4, 12), rng.uniform(4, 12), rng.uniform(2, 4)
        inside = ((u - x) ** 2 + (v - y) ** 2 < r * r)[..., None]
        images.append(np.where(inside, rng.uniform(0, 255, 3), rng.uniform(0, 255)))
    return np.stack(images).astype(np.uint8)


def stripes(n: int) -> NDArray[np.uint8]:
    rng, (v, u) = RNG(0), np.mgrid[:16, :16]
    waves = [
        127 + 120 * np.sin(rng.uniform(0.5, 0.8) * (u + k % 3 * v) + rng.uniform(0, 6.3))
        for k in range(n)
    ]
    noise = rng.normal(0, 5, (n, 16, 16, 3))
    return np.clip(
        np.stack(waves)[..., None] * rng.uniform(0.3, 1, (n, 1, 1, 3)) + noise, 0, 255
    ).astype(np.uint8)


def flat(n: int) -> NDArray[np.uint8]:
    """Return images of one shade each."""
    shade = np.linspace(0, 255, n)[:, None, None, None]
    return np.broadcast_to(shade, (n, 16, 16, 3)).astype(np.uint8)


def noise(n: int) -> NDArray[np.uint8]:
    return RNG(0).integers(0, 256, (n, 16, 16, 3), dtype=np.uint8)


@pytest.mark.parametrize("make", [photos, shapes, stripes, flat, noise])
def test_ordinary_images_are_no_copies(make: Callable[[int], NDArray[np.uint8]]) -> None:
    found, groups = halves(make(200))
    assert found.mean() < 0.02
    assert len(np.unique(groups)) > 0.97 * len(groups)


def test_few_examples_have_no_copies() -> None:
    for n in (1, 3, 5, 9):
        assert len(np.unique(copy_groups(photos(n)))) == n
    assert not has_near_copy(Sketches.of(photos(3)), Sketches.of(photos(4))).any()


def test_folds_and_votes_leave_out_the_whole_group() -> None:
    made = scenes("takes")
    h, y, groups = pixels(made["x"]), made["label"], made["scene"]
    plain = cross_fit(h, {"label": y}, seed=0)[0]["label"]
    grouped = cross_fit(h, {"label": y}, groups=groups, seed=0)[0]["label"]
    assert plain.value > 0.95
    assert 0.2 < grouped.value < 0.8
    assert cross_fit(h, {"label": groups % 15}, groups=groups, seed=0) == (
        {},
        {},
    )  # 2 groups a class
    unit = torch.nn.functional.normalize(h.double(), dim=1).numpy()
    rows = np.arange(len(y))
    expected = []
    for i in rows:
        others = np.flatnonzero(groups != groups[i])
        near = others[np.argsort(-(unit[others] @ unit[i]), kind="stable")[:20]]
        counts = np.bincount(y[near], minlength=2)
        first = next(label for label in y[near] if counts[label] == counts.max())
        expected.append(first == y[i])  # the nearest one of those with equal counts
    assert (knn_hits(h, y, rows, groups) == np.array(expected)).mean() > 0.99
