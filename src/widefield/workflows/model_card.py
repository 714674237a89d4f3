"""The model card of an exported encoder; `model_card.md.jinja` is its text."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray

from widefield.core.form import FIT_TEXTS
from widefield.core.names import is_seen
from widefield.encoders import Encoder, EncoderConfig, Readout, needs_entry
from widefield.train.run_dir import RunFolder
from widefield.version import __version__


def model_card(
    encoder: Encoder,
    run: str | Path,
    findings: Sequence[str] = (),
    *,
    readout: Readout | None = None,
) -> str:
    """Return the model card of the encoder of a run, or of a file, about which less is known.

    Of the path of the data it has the last part only.
    """
    config, black_white = encoder.config, encoder.config.black_white
    properties = {
        "architecture": config.name,
        "parameters": f"{sum(p.numel() for p in encoder.parameters()):,}",
        "features": f"{encoder.dim:,}",
        "images": "{} x {} pixels, {} channels".format(*config.image_size, config.channels),
        "resizing": f"{config.interpolation}, {FIT_TEXTS[config.fit]}",
        "normalization": _normalization(config),
    }
    if black_white is not None:
        properties["more than 8 bits"] = _ranges(np.array(black_white))
    about = ": it turns images into features."
    folder = RunFolder(path=Path(run))
    if folder.settings_file.exists():
        properties |= _run_properties(folder)
        method = folder.recipe().method.name
        about = f" that was trained with `{method}`; it turns images into features."
    # Arrays are the input where images do not come from files, or where timm pads with the mean.
    is_by_channel = black_white is not None and np.ndim(black_white) == 2
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined
    )
    environment.filters["code"] = _code
    template = resources.files("widefield.workflows").joinpath("model_card.md.jinja")
    return environment.from_string(template.read_text("utf-8")).render(
        config=config,
        dim=encoder.dim,
        about=about,
        of_files=config.channels == 3 and not is_by_channel and config.fit != "pad",
        levels=None if black_white is None else np.array(black_white).tolist(),
        needs_entry=needs_entry(config),
        readout=readout,
        facts=properties,
        findings=findings,
        version=__version__,
    )


def _run_properties(folder: RunFolder) -> dict[str, str]:
    recipe, settings = folder.recipe(), folder.settings()
    return {
        "trained on": _code(str(settings["data"]).rstrip("/").rpartition("/")[2]),
        "examples": f"{len(folder.manifest.paths()):,}",
        "method": _code(recipe.method.name),
        "views": _code(recipe.views.names),
        "epochs": str(recipe.epochs),
        "batch size": str(recipe.batch_size),
        "seed": str(recipe.seed),
    }


def _ranges(black_white: NDArray[np.floating]) -> str:
    """Return which values become black and white: 8 bits of all channels, or levels of each."""
    if black_white.ndim == 1:
        return "{:g} becomes 0, {:g} becomes 255".format(*black_white)
    return "; ".join(
        f"channel {k}: {black:g} becomes 0, {white:g} becomes 1"
        for k, (black, white) in enumerate(black_white.tolist())
    )


def _normalization(config: EncoderConfig) -> str:
    mean, std = (", ".join(f"{x:.6g}" for x in values) for values in (config.mean, config.std))
    guessed = " (guessed: the weights did not state it)" if config.guessed else ""
    return f"mean {mean}, standard deviation {std} of images in [0, 1]{guessed}"


def _code(text: str) -> str:
    """Return `text` as Markdown code, without characters that would end it."""
    plain = "".join(c for c in text if is_seen(c)).replace("`", "'")
    return f"`{plain}`"
