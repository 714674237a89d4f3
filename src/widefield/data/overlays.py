"""Planted features: a digit, a shape or a letter drawn over each image, with a label of its own.

They are the added features of Tamkin et al., "Feature Dropout" (section 5): an encoder that
learns only the easier of two features of an image shows it here, because the planted one is known.
Positions are stated for 32 pixels and scale with the image:

- `digits`: a white handwritten digit, 10 pixels high, at x, y in {4, 16}; its zeros are clear.
  `jitter=J` (ours) moves all four by one draw from -J..J each way: fixed places can be read off the
  pixels by a linear classifier, jittered ones cannot.
- `shapes`: a square, triangle or circle of random colour, 9 pixels high, somewhere inside the
  centre third (11 pixels), alpha 180/255.
- `letters`: one letter of random colour, font size 12, at four places, x and y each drawn from
  [0, 6] or [16, 21].

Options of all three grade how easy a plant is to see (ours): `size` in [0.5, 1.2] scales it,
`colour=fixed` is white and `colour=random` a random one, `place=fixed` puts it at the same place
in every image (digits have `jitter=0` for that).

Everything drawn is a pure function of (seed, index, held_out). Held-out overlays mean the same
classes but come from other sources: digits from images of their own, letters in a bold, slanted
face, and all colours and places from another random stream.

`fresh` draws class, colour and places anew each time an example is read, as published: a function
of (seed, index, read, held_out). The two views of one read share their overlay.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

from widefield.core import rng
from widefield.data.arrays import read_npz

_CHUNK = 512
_SMALLEST_SIDE = 16
_MOST_JITTER = 4  # the digits then touch the border of a 32-pixel image
_SMALLEST_SIZE, _LARGEST_SIZE = 0.5, 1.2  # larger ones touch each other or the border
_WORDS = {"colour": ("fixed", "random"), "place": ("free", "fixed")}
_OVERSAMPLING = 8
_DIGIT_SIDE, _SHAPE_SIDE, _LETTER_SIDE = 10, 9, 11
_FONT_SIZE = 12
_BOLD_STROKE, _SLANT = 0.375, 0.2
_HELD_OUT_SHARE = 0.2
_LUMA = np.array([0.299, 0.587, 0.114])

SHAPES = ("square", "triangle", "circle")
LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
PLANTS: dict[str, tuple[str, ...]] = {
    "digits": ("alpha", "colour", "fresh", "jitter", "size", "source"),
    "shapes": ("alpha", "colour", "fresh", "place", "size"),
    "letters": ("alpha", "colour", "fresh", "place", "size"),
}
"""What is drawn over an image, and the options that each takes."""

STACKED = {"stacked-digits": ("masked", "source")}
"""What gets a channel of its own instead, see `widefield.data.stacked`."""

_SWITCHES = ("fresh", "masked")
_READ = 2**32  # more than there are examples


@dataclass(frozen=True, kw_only=True)
class Planted:
    """Images with a planted feature, and the truth about it."""

    images: NDArray[np.uint8]
    """uint8 [n, H, W, C]."""
    labels: NDArray[np.int64]
    """Class id of what was planted in each, int64 [n]."""
    classes: tuple[str, ...]
    mask: NDArray[np.bool_]
    """Pixels that the overlay covers, at least in part, bool [n, H, W]."""


@dataclass(frozen=True, kw_only=True)
class Overlay:
    """One planted feature, ready to be drawn on images of one size."""

    name: str
    classes: tuple[str, ...]
    cover: NDArray[np.float32]
    """How far each stamp covers what is below it, in [0, 1], [stamps, h, w]."""
    ink: NDArray[np.float32]
    """Brightness of each stamp's pixels, in [0, 1], [stamps, h, w]."""
    stamp_class: NDArray[np.int64]
    """Class id of each stamp, [stamps]."""
    places: NDArray[np.int64]
    """Smallest top and left of each place a stamp is drawn at, [places, 2]."""
    spread: NDArray[np.int64]
    """How many tops and lefts there are to choose from at each place, [places, 2]."""
    together: bool
    """Whether all places of an example move by the same draw."""
    coloured: bool
    alpha: float
    seed: int
    held_out: bool
    fresh: bool = False
    """Whether every read of an example is drawn by itself."""

    def labels(self, index: ArrayLike, read: int = 0) -> NDArray[np.int64]:
        """Return the class id planted in each example of `index`, int64 [n], at its read `read`."""
        return self.stamp_class[self._stamps(self._at(index, read))]

    def mask(self, index: ArrayLike, size: tuple[int, int], read: int = 0) -> NDArray[np.bool_]:
        """Return the pixels that it covers, at least in part, of images of `size` [n, H, W]."""
        index = self._at(index, read)
        mask = np.zeros((len(index), *size), dtype=np.bool_)
        covered = self.cover[self._stamps(index)] > 0
        for place in range(len(self.places)):
            mask.reshape(-1)[self._pixels(index, place, mask.shape)] |= covered
        return mask

    def paint(
        self, images: NDArray[np.uint8], index: ArrayLike, read: int = 0
    ) -> NDArray[np.bool_]:
        """Draw on uint8 `images` [n, H, W, C] in place; return the covered pixels [n, H, W].

        pixel <- pixel + alpha * cover * (ink * colour - pixel)
        """
        assert images.flags.c_contiguous
        index = self._at(index, read)
        mask = np.zeros(images.shape[:3], dtype=np.bool_)
        for first in range(0, len(images), _CHUNK):  # a chunk and its floats fit in the CPU cache
            part = slice(first, first + _CHUNK)
            self._paint_chunk(images[part], mask[part], index[part])
        return mask

    def _paint_chunk(
        self, images: NDArray[np.uint8], mask: NDArray[np.bool_], index: NDArray[np.int64]
    ) -> None:
        stamp = self._stamps(index)
        cover = self.cover[stamp]
        covered = cover > 0
        colour = self._colours(index, images.shape[-1])
        target = self.ink[stamp][..., None] * colour[:, None, None, :]
        weight = np.float32(self.alpha) * cover[..., None]
        for place in range(len(self.places)):
            pixel = self._pixels(index, place, images.shape)
            below = images.reshape(-1, images.shape[-1])[pixel].astype(np.float32)
            below += weight * (target - below)
            images.reshape(-1, images.shape[-1])[pixel] = np.rint(below, out=below)
            mask.reshape(-1)[pixel] |= covered

    def _at(self, index: ArrayLike, read: int) -> NDArray[np.int64]:
        """Return where an example's random numbers stand."""
        return np.asarray(index, dtype=np.int64) + (_READ * read if self.fresh else 0)

    def _draw(
        self, what: str, index: ArrayLike, high: int | NDArray[np.int64]
    ) -> NDArray[np.int64]:
        pool = "held out" if self.held_out else "train"
        return rng.integers(self.seed, f"{self.name}/{pool}/{what}", index, high)

    def _stamps(self, index: ArrayLike) -> NDArray[np.int64]:
        return self._draw("stamp", index, len(self.stamp_class))

    def _colours(self, index: ArrayLike, channels: int) -> NDArray[np.float32]:
        if not self.coloured:
            return np.full((len(np.asarray(index)), channels), 255, dtype=np.float32)
        rgb = np.stack([self._draw(f"colour {c}", index, 256) for c in "rgb"], axis=1)
        return (rgb @ _LUMA[:, None] if channels == 1 else rgb).astype(np.float32)

    def _pixels(self, index: ArrayLike, place: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return where a stamp lands, as positions in the flattened [n, H, W], [n, h, w]."""
        drawn = 0 if self.together else place
        top = self.places[place, 0] + self._draw(f"top {drawn}", index, self.spread[place, 0])
        left = self.places[place, 1] + self._draw(f"left {drawn}", index, self.spread[place, 1])
        count, height, width = shape[:3]
        corner = (np.arange(count) * height + top) * width + left
        down, right = (np.arange(length) for length in self.cover.shape[1:])
        pixels: NDArray[np.int64] = corner[:, None, None] + down[:, None] * width + right
        return pixels


def plant(
    images: NDArray[np.uint8],
    name: str,
    *,
    seed: int = 0,
    index: ArrayLike | None = None,
    held_out: bool = False,
    alpha: float | None = None,
    source: Path | str | None = None,
) -> Planted:
    """Draw the feature `name` over a copy of `images`, uint8 [n, H, W, C] with C of 1 or 3.

    `index` [n] are the examples' indices (default 0..n-1): the same index always gets the same
    overlay. Raises ValueError for an unknown name, or images smaller than 16 pixels.

    Example:
        >>> planted = plant(np.zeros((4, 32, 32, 3), np.uint8), "digits")
        >>> planted.labels.shape, bool(planted.mask.any())
        ((4,), True)
    """
    options: dict[str, str] = {}
    if alpha is not None:
        options["alpha"] = str(alpha)
    if source is not None:
        options["source"] = str(source)
    overlay = make_overlay(name, images.shape[1:], options, seed=seed, held_out=held_out)
    positions = np.arange(len(images)) if index is None else np.asarray(index)
    if positions.shape != (len(images),):
        raise ValueError(
            f"index has shape {positions.shape}; expected one for each of {len(images)} images"
        )
    drawn = np.array(images, order="C")
    mask = overlay.paint(drawn, positions)
    return Planted(
        images=drawn, labels=overlay.labels(positions), classes=overlay.classes, mask=mask
    )


def make_overlay(
    name: str,
    shape: tuple[int, ...],
    options: Mapping[str, str],
    *,
    seed: int,
    held_out: bool,
) -> Overlay:
    """Prepare the plant `name` for images of `shape` (H, W, C)."""
    check_plant(name, options)
    if name in STACKED:
        raise ValueError(f"'{name}' gets a channel of its own and is not drawn over an image")
    height, width, channels = shape
    if channels not in (1, 3):
        raise ValueError(f"planted features need 1 or 3 channels; these images have {channels}")
    if min(height, width) < _SMALLEST_SIDE:
        raise ValueError(
            f"planted features need images of at least {_SMALLEST_SIDE} pixels a side; "
            f"these are {height}x{width}"
        )
    colour = options.get("colour", "fixed" if name == "digits" else "random")
    common = partial(
        Overlay,
        name=name,
        seed=seed,
        held_out=held_out,
        coloured=colour == "random",
        fresh="fresh" in options,
    )
    size = float(options.get("size", "1"))
    alpha = float(options["alpha"]) if "alpha" in options else None
    if name == "digits":
        jitter = int(options.get("jitter", "0"))
        source = options.get("source")
        return _digits(common, (height, width), size, alpha or 1.0, jitter, source, held_out)
    if name == "shapes":
        overlay = _shapes(common, (height, width), size, alpha or 180 / 255)
    else:
        overlay = _letters(common, (height, width), size, alpha or 1.0, held_out)
    return _at_fixed_places(overlay) if options.get("place") == "fixed" else overlay


def check_plant(name: str, options: Mapping[str, str]) -> None:
    """Raise ValueError unless `name` is a plant and takes `options`."""
    known = PLANTS | STACKED
    if name not in known:
        near = get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"no planted feature named '{name}'; did you mean '{near}'? Known: {', '.join(known)}"
        )
    for option in options.keys() - set(known[name]):
        raise ValueError(f"'+{name}' has no option '{option}'; known: {', '.join(known[name])}")
    for option in options.keys() & set(_SWITCHES):
        if options[option]:
            raise ValueError(f"'+{name}:{option}' takes no value, got '{options[option]}'")
    if "alpha" in options:
        try:
            valid = 0 < float(options["alpha"]) <= 1
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"alpha of '+{name}' is '{options['alpha']}'; expected 0 < alpha <= 1")
    for option, allowed in _WORDS.items():
        if options.get(option, allowed[0]) not in allowed:
            raise ValueError(
                f"{option} of '+{name}' is '{options[option]}'; expected {' or '.join(allowed)}"
            )
    try:
        valid = _SMALLEST_SIZE <= float(options.get("size", "1")) <= _LARGEST_SIZE
    except ValueError:
        valid = False
    if not valid:
        raise ValueError(
            f"size of '+{name}' is '{options['size']}'; "
            f"expected {_SMALLEST_SIZE} to {_LARGEST_SIZE}, a factor"
        )
    if options.get("jitter", "0") not in map(str, range(_MOST_JITTER + 1)):
        raise ValueError(
            f"jitter of '+{name}' is '{options['jitter']}'; expected 0 to {_MOST_JITTER} pixels"
        )


def _at_fixed_places(overlay: Overlay) -> Overlay:
    """In the middle of each place's range instead of anywhere in it."""
    middle = overlay.places + (overlay.spread - 1) // 2
    return replace(overlay, places=middle, spread=np.ones_like(overlay.spread))


def _digits(
    common: "partial[Overlay]",
    size: tuple[int, int],
    factor: float,
    alpha: float,
    jitter: int,
    source: str | None,
    held_out: bool,
) -> Overlay:
    images, labels, classes = digit_source(source)
    pool = digit_pool(images, held_out)
    side = _scaled(factor * _DIGIT_SIDE, min(size))
    ink = np.stack(
        [
            np.asarray(Image.fromarray(images[i]).resize((side, side), Image.Resampling.BICUBIC))
            for i in pool
        ]
    )
    corners = [(y, x) for y in (4, 16) for x in (4, 16)]
    return common(
        classes=classes,
        cover=(ink > 0).astype(np.float32),
        ink=ink.astype(np.float32) / 255,
        stamp_class=labels[pool],
        places=np.array(
            [(_scaled(y - jitter, size[0]), _scaled(x - jitter, size[1])) for y, x in corners]
        ),
        spread=np.full((4, 2), 1 + 2 * _scaled(jitter, min(size)), dtype=np.int64),
        together=True,
        alpha=alpha,
    )


def digit_source(
    source: str | None,
) -> tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...]]:
    """Return grey digits uint8 [m, h, w], their class ids and class names."""
    if source is None:
        from sklearn.datasets import load_digits

        data = load_digits()
        grey = np.round(data.images * (255 / 16)).astype(np.uint8)
        return grey, data.target.astype(np.int64), tuple("0123456789")
    if not Path(source).is_file():
        raise ValueError(f"no digits at '{source}'; expected a .npz pack with images and labels")
    examples = read_npz(Path(source))
    if examples.pixels is None or examples.pixels.shape[-1] != 1 or not examples.labels:
        raise ValueError(f"'{source}' holds no grey digits; expected keys 'images' and 'labels'")
    task = next(iter(examples.labels))
    return examples.pixels[..., 0], examples.labels[task], examples.classes[task]


def digit_pool(images: NDArray[np.uint8], held_out: bool) -> NDArray[np.int64]:
    """Return which digit images belong to a pool: by a hash of their pixels, 80 / 20.

    Hashing pixels keeps copies of one image on one side.
    """
    hashes = [hashlib.blake2b(image.tobytes(), digest_size=8).digest() for image in images]
    share = np.frombuffer(b"".join(hashes), dtype="<u8") / 2.0**64
    return np.flatnonzero((share < _HELD_OUT_SHARE) == held_out)


def _shapes(
    common: "partial[Overlay]", size: tuple[int, int], factor: float, alpha: float
) -> Overlay:
    side = _scaled(factor * _SHAPE_SIDE, min(size))
    big = side * _OVERSAMPLING
    cover = []
    for shape in SHAPES:
        canvas = Image.new("L", (big, big))
        draw = ImageDraw.Draw(canvas)
        if shape == "square":
            draw.rectangle((0, 0, big, big), fill=255)
        elif shape == "triangle":
            draw.polygon([(0, big), (big / 2, 0), (big, big)], fill=255)
        else:
            draw.ellipse((0, 0, big - 1, big - 1), fill=255)
        cover.append(_shrunk(canvas, side))
    third = [-(-length // 3) for length in size]
    return common(
        classes=SHAPES,
        cover=np.stack(cover),
        ink=np.ones((len(SHAPES), side, side), dtype=np.float32),
        stamp_class=np.arange(len(SHAPES)),
        places=np.array([[length // 3 for length in size]]),
        spread=np.array([[max(length - side + 1, 1) for length in third]]),
        together=False,
        alpha=alpha,
    )


def _letters(
    common: "partial[Overlay]",
    size: tuple[int, int],
    factor: float,
    alpha: float,
    held_out: bool,
) -> Overlay:
    side = _scaled(factor * _LETTER_SIDE, min(size))
    lows, spreads = [], []
    for length in size:
        near, far, last = 0, _scaled(16, length), min(_scaled(21, length), length - side)
        lows.append((near, far))
        spreads.append((_scaled(6, length) + 1, last - far + 1))
    quarters = [(down, right) for down in (0, 1) for right in (0, 1)]
    return common(
        classes=LETTERS,
        cover=np.stack([_shrunk(_glyph(letter, held_out), side) for letter in LETTERS]),
        ink=np.ones((len(LETTERS), side, side), dtype=np.float32),
        stamp_class=np.arange(len(LETTERS)),
        places=np.array([(lows[0][down], lows[1][right]) for down, right in quarters]),
        spread=np.array([(spreads[0][down], spreads[1][right]) for down, right in quarters]),
        together=False,
        alpha=alpha,
    )


def _glyph(letter: str, bold_slanted: bool) -> Image.Image:
    """Draw a letter in the top left of a square, oversampled; one too wide is squeezed to fit."""
    side = _LETTER_SIDE * _OVERSAMPLING
    font = ImageFont.load_default(_FONT_SIZE * _OVERSAMPLING)
    stroke = round(_BOLD_STROKE * _OVERSAMPLING) if bold_slanted else 0
    canvas = Image.new("L", (3 * side, 2 * side))
    ImageDraw.Draw(canvas).text((side, 0), letter, fill=255, font=font, stroke_width=stroke)
    if bold_slanted:
        shear = (1, _SLANT, 0, 0, 1, 0)
        canvas = canvas.transform(canvas.size, Image.Transform.AFFINE, shear)
    glyph = canvas.crop(canvas.getbbox())
    if glyph.width > side:
        glyph = glyph.resize((side, glyph.height), Image.Resampling.BOX)
    square = Image.new("L", (side, side))
    square.paste(glyph, (0, 0))
    return square


def _shrunk(canvas: Image.Image, side: int) -> NDArray[np.float32]:
    """Return the covered share of each pixel, [side, side]."""
    small = canvas.resize((side, side), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


def _scaled(at_32: float, length: int) -> int:
    return round(at_32 * length / 32)
