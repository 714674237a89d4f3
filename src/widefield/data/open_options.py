"""The options of opening data as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from widefield.core.errors import option
from widefield.core.names import check_name
from widefield.core.types import (
    BlackWhite,
    Fit,
    PixelStorage,
    ProgressCallback,
    Size,
    as_size,
    is_black_white,
)
from widefield.data.labels import LabelTable

Agree = Callable[[str | None], str | None]
"""Returns why all processes of a run keep images encoded, from what one of them found; or None."""


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """The arguments of `open_dataset` but the data, checked."""

    max_examples: int | None = None
    image_size: int | Size | None = None
    black_white: BlackWhite | None = None
    eight_bits: bool = False
    seed: int = 0
    held_out: bool = False
    labels: LabelTable | None = None
    unlabeled: bool = False
    for_probe: bool = False
    """Whether probes are fitted or scored on the examples: if all tasks lack labels, the examples
    without one are left out rather than the tasks."""
    exclude: tuple[str, ...] = ()
    group: str | None = None
    seconds: float | None = None
    sample_rate: int | None = None
    fit: Fit = "crop"
    pixels: PixelStorage = "auto"
    memory_budget: int | None = None
    agree: Agree = lambda reason: reason
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        side = None if self.size is None else min(self.size)
        for name, value in (("max_examples", self.max_examples), ("image_size", side)):
            if value is not None and value < 1:
                raise ValueError(f"{option(name)} is {value}; expected at least 1")
        black_white = self.black_white
        if black_white is not None and not is_black_white(black_white):
            raise ValueError(f"black_white is {black_white!r}; expected two numbers, black < white")
        check_name("fit", self.fit, get_args(Fit))
        check_name("pixels", self.pixels, get_args(PixelStorage))

    @property
    def size(self) -> Size | None:
        """Height and width of the examples; None to take those of the data."""
        return None if self.image_size is None else as_size(self.image_size)


DEFAULT_OPTIONS = OpenOptions()
