"""Generated images of four kinds: stained cells, x-rays, satellite images, scanned documents.

Each image has three labels, which are drawn independently. What else differs from image to image,
such as position, light and noise, says nothing about them. The classes of a label that is an amount
overlap. Their difficulty was set by raw pixels and an untrained network alone.
"""

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from widefield.data import Dataset, open_dataset

SIDE = 32
"""Pixels of a side; images are drawn at twice as many, and averaged over 2 x 2."""

Plane = NDArray[np.float64]
"""A number for each pixel [64, 64], or a color [64, 64, 3]."""

X, Y = np.meshgrid(*2 * [(np.arange(2 * SIDE) + 0.5) / SIDE - 1])
"""Coordinates from -1 to 1, to the right and downward."""

HEMATOXYLIN, EOSIN = np.array([0.65, 0.70, 0.29]), np.array([0.07, 0.99, 0.11])
"""Absorbance of red, green and blue (Ruifrok and Johnston 2001)."""


def soft(inside: Plane) -> Plane:
    """Return 1 where a plane is positive, 0 where it is negative, with an edge of about a pixel."""
    return (1 + np.tanh(SIDE * inside)) / 2


def disk(x: float, y: float, radius: float) -> Plane:
    """Return the mask of a disk."""
    return soft(radius - np.hypot(X - x, Y - y))


def ellipse(x: float, y: float, a: float, b: float, angle: float = 0.0) -> Plane:
    """Return the mask of an ellipse with half-axes a and b."""
    u, v = turned(X - x, Y - y, angle)
    return soft(min(a, b) * (1 - np.hypot(u / a, v / b)))


def turned(x: Plane, y: Plane, angle: float) -> tuple[Plane, Plane]:
    """Return coordinates along and across a direction."""
    return np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x


def clouds(rng: Generator, cells: int) -> Plane:
    """Return smooth noise in [0, 1] with about so many bumps along a side."""
    coarse = rng.random((cells + 1, cells + 1))
    place = np.linspace(0, cells, 2 * SIDE)
    low, part = np.divmod(place.clip(max=cells - 1e-9), 1)
    low, part = low.astype(int), (3 - 2 * part) * part**2
    rows = coarse[low] * (1 - part)[:, None] + coarse[low + 1] * part[:, None]
    smooth: Plane = rows[:, low] * (1 - part) + rows[:, low + 1] * part
    return smooth


# Cells: bright field, two stains, no upper side


def cell(rng: Generator, stain: int, chromatin: int, nucleus: int) -> Plane:
    """Draw a cell: color of its granules, darkness and lobes of its nucleus.

    Stains absorb light: the image is exp(-h H - e E), with the amounts h and e of each stain.
    """
    strength, (x, y), angle = rng.normal(1, 0.08), rng.uniform(-0.15, 0.15, 2), rng.uniform(0, 7)
    body = ellipse(x, y, rng.uniform(0.6, 0.75), rng.uniform(0.5, 0.65), angle)
    for _ in range(rng.integers(3)):  # parts of other cells
        where = rng.uniform(0, 7)
        body = body + 0.7 * disk(1.2 * np.cos(where), 1.2 * np.sin(where), rng.uniform(0.2, 0.5))
    dots = body * (clouds(rng, 16) > 0.6)
    share = (0.1, 0.35, 0.6, 0.85)[stain] + rng.normal(0, 0.1)
    h, e = 0.10 * body + 0.5 * share * dots, 0.15 * body + 0.5 * (1 - share) * dots
    h = h + (0.6, 0.9, 1.3)[chromatin] * rng.normal(1, 0.1) * _lobes(rng, x, y, nucleus)
    light = rng.uniform(0.88, 0.98) * np.exp(
        -strength * (_each(h) * HEMATOXYLIN + _each(e) * EOSIN)
    )
    return light + rng.normal(0, 0.03, light.shape)


def _lobes(rng: Generator, x: float, y: float, shape: int) -> Plane:
    """Return a nucleus that is round, oval, or of two or three lobes, in any direction."""
    angle, size = rng.uniform(0, 7), rng.uniform(0.85, 1.15)
    if shape < 2:
        a, b = size * np.array([(0.29, 0.29), (0.40, 0.21)][shape])
        return ellipse(x, y, a, b, angle)
    ends = angle + np.arange(shape) * 2 * np.pi / shape
    parts = [disk(x + 0.25 * np.cos(t), y + 0.25 * np.sin(t), 0.2 * size) for t in ends]
    return np.max(parts, axis=0)


# X-rays: gray, a left and a right side


def xray(rng: Generator, spot: int, density: int, heart: int) -> Plane:
    """Draw a chest: side of a faint spot, brightness of the lungs, width of the heart.

    The spot is nowhere, left, right or on both sides.
    """
    (x, y), size = rng.uniform(-0.08, 0.08, 2), rng.uniform(0.94, 1.06)
    chest = 0.75 * ellipse(x, y + 0.1, 0.95 * size, 1.1 * size)
    dark = (0.42, 0.34, 0.26)[density] + rng.normal(0, 0.03)
    sides = [x + side * 0.42 * size for side in (-1, 1)]
    for side in sides:
        chest = chest - dark * ellipse(side, y, 0.3 * size, 0.65 * size)
    chest = chest + 0.12 * ellipse(x, y, 0.08, 1.2)  # spine
    chest = chest + 0.04 * np.cos(22 * (Y - y) + 4 * (X - x) ** 2 + rng.uniform(0, 7))  # ribs
    width = (0.22, 0.30, 0.38)[heart] * rng.normal(1, 0.06)
    chest = chest + 0.2 * ellipse(x + 0.15 * size, y + 0.25, width, 0.3 * size)
    for side, has in zip(sides, (spot in (1, 3), spot in (2, 3)), strict=True):
        u, v = rng.uniform(-0.15, 0.15), rng.uniform(-0.45, 0.35)
        blob = np.exp(-((X - side - u) ** 2 + (Y - y - v) ** 2) / rng.uniform(0.08, 0.13) ** 2)
        chest = chest + has * rng.uniform(0.15, 0.25) * blob
    exposed = rng.uniform(0.85, 1.15) * chest + rng.uniform(-0.05, 0.05)
    return exposed + rng.normal(0, 0.04, chest.shape)


# Satellite images: seen from above, no upper side


def ground(rng: Generator, cover: int, green: int, road: int) -> Plane:
    """Draw ground: texture of its cover, how green it is, and no, one or two crossing roads.

    Covers are meadow (smooth), field (rows), wood (crowns), town (blocks), bare ground (rough).
    """
    angle, light = rng.uniform(0, 7), rng.uniform(0.85, 1.15)
    u, v = turned(X, Y, angle)
    texture = _texture(rng, cover, u, v)
    texture = 0.3 * (texture - texture.mean()) / texture.std() * rng.uniform(0.6, 1.0)
    share = (0.2, 0.5, 0.8)[green] + rng.normal(0, 0.15)
    color = (1 - share) * np.array([0.50, 0.42, 0.32]) + share * np.array([0.26, 0.44, 0.24])
    picture = _each(1 + texture) * color * _each(0.9 + 0.2 * clouds(rng, 2))
    for k in range(road):
        along, across = turned(X, Y, angle + rng.normal(0, 0.2) + k * np.pi / 2)
        line = _each(soft(0.05 - abs(across + rng.uniform(-0.4, 0.4) + 0.05 * np.sin(3 * along))))
        picture = picture * (1 - line) + 0.55 * line
    haze = rng.uniform(0, 0.15)
    picture = (1 - haze) * light * picture + haze * 0.8
    return picture + rng.normal(0, 0.03, picture.shape)


def _texture(rng: Generator, cover: int, u: Plane, v: Plane) -> Plane:
    """Return the texture of a cover, in coordinates that are turned."""
    if cover == 0:
        return clouds(rng, 4)
    if cover == 1:
        return np.sin(rng.uniform(18, 26) * u + rng.uniform(0, 7)) + clouds(rng, 4)
    if cover == 2:
        return clouds(rng, 16) ** 2 + 0.5 * clouds(rng, 4)
    if cover == 3:
        return np.sign(np.sin(rng.uniform(9, 13) * u)) * np.sign(np.sin(11 * v))
    return np.sum([clouds(rng, 2**k) / 1.5**k for k in range(2, 6)], axis=0)


# Documents: black on white, to be read in one direction


def page(rng: Generator, layout: int, spacing: int, turn: int) -> Plane:
    """Draw a page: layout, distance of its lines, and whether it is upside down.

    Layouts are one column, two columns, a table, and a figure above text. Lines are flush left, and
    some pages have a title.
    """
    ink = np.zeros((2 * SIDE, 2 * SIDE))
    left, top = rng.integers(3, 12, 2)
    right, bottom = 2 * SIDE - rng.integers(3, 12, 2)
    if rng.random() < 0.5:
        ink[top : top + 3, left : left + rng.integers(16, 32)] = 0.9
        top += 7
    if layout == 3:
        height = rng.integers(14, 22)
        ink[top : top + height, left + 4 : right - 4] = rng.uniform(0.3, 0.6)
        top += height + 3
    columns = {1: 2, 2: 3}.get(layout, 1)
    edges = np.linspace(left, right + 3, columns + 1).astype(int)
    for y in range(top, bottom, (5, 6, 8)[spacing]):
        for first, end in zip(edges[:-1], edges[1:] - 3, strict=True):
            length = rng.uniform(0.3, 0.7) if layout == 2 else 1 - 0.6 * rng.random() ** 3
            words = rng.random(end - first) < 0.85
            words[int(length * (end - first)) :] = False
            ink[y : y + 3, first:end] = words * rng.uniform(0.6, 0.8)
    paper = rng.uniform(0.85, 1) * np.array([1, 1, rng.uniform(0.9, 1)])
    picture = paper * _each(1 - rng.uniform(0.6, 0.9) * (np.rot90(ink, 2) if turn else ink))
    shade = 1 - rng.uniform(0, 0.2) * clouds(rng, 2)
    return picture * _each(shade) + rng.normal(0, 0.04, picture.shape)


def _each(plane: Plane) -> Plane:
    """Return a plane with an axis for colors."""
    return plane[..., None]


Draw = Callable[[Generator, int, int, int], Plane]

KINDS: dict[str, tuple[Draw, dict[str, int]]] = {
    "cells": (cell, {"stain": 4, "chromatin": 3, "nucleus": 4}),
    "x-rays": (xray, {"spot": 4, "density": 3, "heart": 3}),
    "satellite": (ground, {"cover": 5, "green": 3, "roads": 3}),
    "documents": (page, {"layout": 4, "spacing": 3, "turned": 2}),
}
"""Kind -> what draws an image from its labels, and the number of classes of each label."""


def scenes(kind: str, n: int, seed: int) -> Dataset:
    """Return n images of a kind with their labels, uint8 [n, 32, 32, 3]; x-rays are gray.

    Example:
        >>> scenes("x-rays", 4, seed=0).images.shape
        (4, 32, 32, 1)
    """
    rng, (draw, labels) = np.random.default_rng(seed), KINDS[kind]
    drawn = {task: rng.integers(classes, size=n) for task, classes in labels.items()}
    images = np.array([draw(rng, *row) for row in zip(*drawn.values(), strict=True)])
    small = images.reshape(n, SIDE, 2, SIDE, 2, -1).mean((2, 4))
    return open_dataset({"x": (255 * small.clip(0, 1)).round().astype(np.uint8), **drawn})
