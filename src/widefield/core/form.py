"""The form of examples, equal for all that one encoder takes, and how images are brought to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

from widefield.core.types import (
    BlackWhite,
    Fit,
    Kind,
    Size,
    as_black_white,
    as_size,
    is_black_white,
)
from widefield.core.validation import is_valid

_WORDS = {
    "kind": "kind of data",
    "rate": "sampling rate",
    "size": "image size",
    "channels": "number of channels",
    "black_white": "black and white",
    "fit": "fit",
}
"""Name of each property in messages, in the order of comparison: the kind explains the others."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The form of examples, or that which an encoder takes; None is any.

    Example:
        >>> form = Form(kind="images", size=(32, 32), channels=3)
        >>> form.mismatch(Form(channels=1), names=("the run", "photos"))
        'number of channels differs: 3 for the run, 1 for photos'
    """

    kind: Kind | None = None
    size: Size | None = None
    """Height and width, pixels; of windows and sounds (1, steps)."""
    channels: int | None = None
    rate: int | None = None
    """Sampling rate of sounds, Hz."""
    black_white: BlackWhite | None = None
    """The values that become 0 and 1 in images of more than 8 bits, if the files do not define
    them."""
    fit: Fit | None = None
    """How images of another shape are brought to the size."""

    def mismatch(self, other: "Form", names: tuple[str, str] = ("one", "the other")) -> str | None:
        """Return in words the first property that both have and that differs; None without one."""
        for key, words in _WORDS.items():
            mine, others = getattr(self, key), getattr(other, key)
            if None not in (mine, others) and mine != others:
                if key == "size":
                    mine, others = (f"{height}x{width}" for height, width in (mine, others))
                return f"{words} differs: {mine} for {names[0]}, {others} for {names[1]}"
        return None

    def filled(self, other: "Form") -> "Form":
        """Return this form, with the properties of `other` where it is open."""
        mine = {key: getattr(self, key) for key in _WORDS}
        return Form(**{k: getattr(other, k) if v is None else v for k, v in mine.items()})

    def options(self) -> dict[str, Any]:
        """Return the options of `open_dataset` for other data in this form, as runs keep them."""
        if self.kind == "images":
            return {"image_size": self.size, "black_white": self.black_white, "fit": self.fit}
        return {} if self.rate is None else {"sample_rate": self.rate}

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> "Form":
        """Return the form with these `options()`, from a file."""
        values = {k: as_black_white(v) if isinstance(v, list) else v for k, v in options.items()}
        types = {"image_size": Size, "fit": Fit, "sample_rate": int}
        for name, value in values.items():
            if name == "black_white":
                valid = value is None or is_black_white(value)
            else:
                valid = name in types and is_valid(types[name], value)
            if not valid:
                raise ValueError(f"invalid {name}, {value!r}")
        if "sample_rate" in values:
            return cls(kind="sounds", rate=values["sample_rate"])
        return cls(
            kind="images" if values else "windows",
            size=values.get("image_size"),
            black_white=values.get("black_white"),
            fit=values.get("fit"),
        )


ANY_FORM = Form()
"""Examples of any form."""


@dataclass(frozen=True, kw_only=True)
class InputSpec:
    """The record of preprocessing: how an example becomes the input of an encoder.

    Every exported file has it. Images are decoded to RGB, brought to the size by `fit`
    (`center_fit`), scaled to [0, 1], and normalized by (x - mean) / std.
    """

    channels: int = 3
    """C of the images."""
    image_size: int | Size = 32
    """Side of the images, or their height and width, pixels; of windows and sounds (1, steps)."""
    mean: Sequence[float] | None = None
    """Mean of each channel of images in [0, 1]; None is 0.5."""
    std: Sequence[float] | None = None
    """Standard deviation of each channel; None is 0.25."""
    black_white: BlackWhite | None = None
    """The values that become 0 and 1 in images of more than 8 bits, if the files do not define
    them."""
    rate: int | None = None
    """Sampling rate of sounds, Hz; None of other examples."""
    interpolation: str = "bicubic"
    """Filter of the resizing, antialiased."""
    fit: Fit = "crop"
    """How images of another shape are brought to `image_size`."""
    guessed: bool = False
    """Whether mean and std are a guess: the file of weights does not state them."""

    @classmethod
    def of_form(cls, form: Form, **others: Any) -> Self:
        """Return the record of examples of a whole form."""
        assert form.channels is not None
        assert form.size is not None
        return cls(
            channels=form.channels,
            image_size=form.size,
            black_white=form.black_white,
            rate=form.rate,
            fit="crop" if form.fit is None else form.fit,
            **others,
        )

    @property
    def kind(self) -> Kind:
        """Kind of the examples; those of height 1 are windows."""
        if self.rate is not None:
            return "sounds"
        return "windows" if as_size(self.image_size)[0] == 1 else "images"

    @property
    def form(self) -> Form:
        return Form(
            kind=self.kind,
            size=as_size(self.image_size),
            channels=self.channels,
            rate=self.rate,
            black_white=self.black_white,
            fit=self.fit,
        )

    def record(self) -> dict[str, Any]:
        """Return the fields of this class alone, for JSON."""
        return {field.name: getattr(self, field.name) for field in fields(InputSpec)}


COLOR_32 = InputSpec()
"""Color images of 32 x 32 pixels."""


FIT_TEXTS: dict[Fit, str] = {
    "crop": "by the shorter side, cut around the center",
    "pad": "by the longer side, padded with black",
    "squash": "whatever their shape",
}
"""How images are resized, in words."""


def center_fit(before: Size, size: Size, fit: Fit = "crop") -> tuple[Size, Size]:
    """Return (height, width) to resize an image to, and (top, left) of `size` in the result.

    - `crop`: the shorter side fits, and the longer one is cut.
    - `pad`: the longer side fits, and borders are added: (top, left) are negative.
    - `squash`: both sides fit, whatever the shape of the image.

    The other side is rounded down for squares, as by torchvision's `Resize`, and to the nearest for
    other sizes, as by timm's `ResizeKeepRatio`; the cut is that of torchvision's `CenterCrop`. So
    `timm.data.create_transform` does the same as `crop` to each pixel.
    """
    if fit == "squash":
        return size, (0, 0)
    (height, width), (target_height, target_width) = before, size
    nearest = min if fit == "crop" else max
    if target_height == target_width:
        side = nearest(before)
        resized = target_height * height // side, target_width * width // side
    else:
        ratio = nearest(height / target_height, width / target_width)
        resized = round(height / ratio), round(width / ratio)
    resized = max(resized[0], 1), max(resized[1], 1)
    top, left = ((resized[k] - size[k]) / 2 for k in range(2))
    return resized, (round(top), round(left))


def cut_share(before: Size, size: Size, fit: Fit = "crop") -> float:
    """Return the share of the area of an image that `center_fit` cuts off."""
    if fit != "crop":
        return 0.0
    (height, width), _ = center_fit(before, size)
    return 1 - size[0] * size[1] / (height * width)
