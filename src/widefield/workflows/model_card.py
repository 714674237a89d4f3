"""The model card of an exported encoder."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widefield.core.center_fit import FITS
from widefield.core.names import is_seen
from widefield.encoders import Encoder, EncoderConfig, Readout, needs_entry
from widefield.train.run_dir import RunFolder
from widefield.version import __version__

_CARD = """---
library_name: timm
pipeline_tag: image-feature-extraction
tags:
- timm
- image-feature-extraction
- self-supervised
- widefield
---
# {title}

{about}

{lines}
{wide}
## Details

{facts}
{learned}
Written by widefield {version}.
"""

_OF_FILES = """```python
from io import BytesIO

import numpy as np
import timm
from PIL import Image, ImageCms, ImageOps
{register}
# A local folder, or "hf-hub:OWNER/NAME" once it is uploaded.
model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()
data = timm.data.resolve_model_data_config(model)
transform = timm.data.create_transform(**data, is_training=False)


def read(file):  # upright, in 8 bits of sRGB, on white
    image = Image.open(file)
    cut = image.mode[0] not in "IF" and any(f";16{{order}}" in str(image.tile) for order in "BLN")
    image = ImageOps.exif_transpose(image)
    if cut:
        raise ValueError("Pillow reads 8 of the 16 bits of this color image")
    profile = image.info.get("icc_profile")
    if image.mode[0] in "IF":  # gray of more than 8 bits
        {levels}
    if profile:
        image = to_srgb(image, profile)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def to_srgb(image, profile):  # the image itself if its profile is about sRGB, or not readable
    modes = {{"CMYK": ["CMYK"]}} | dict.fromkeys(("1", "L", "LA"), ["L", "RGB"])
    for mode in modes.get(image.mode, ["RGB"]):
        flags = ImageCms.Flags.BLACKPOINTCOMPENSATION
        flags |= ImageCms.Flags.NOOPTIMIZE if mode == "L" else ImageCms.Flags.NONE
        srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))
        intent = ImageCms.Intent.RELATIVE_COLORIMETRIC
        try:
            source = ImageCms.ImageCmsProfile(BytesIO(profile))
            transform = ImageCms.ImageCmsTransform(source, srgb, mode, "RGB", intent, flags=flags)
        except (OSError, ValueError):
            continue
        grid = 15 * np.indices((18, 18, 18), dtype=np.uint8).reshape(3, -1).T[None]
        grid = Image.fromarray(grid).convert(mode)
        change = np.asarray(transform.apply(grid), int) - np.asarray(grid.convert("RGB"), int)
        if mode != "CMYK" and abs(change).max() <= 3:
            return image
        rgba = image.convert("RGBA")
        colors = image if image.mode == mode else rgba.convert("RGB").convert(mode)
        result = transform.apply(colors)
        if image.has_transparency_data:
            result.putalpha(rgba.getchannel("A"))
        return result
    return image


features = model(transform(read("image.png")).unsqueeze(0))  # [1, {dim}]
```
"""

_REGISTER = """
import widefield

widefield.register_with_timm()  # timm alone cannot build this network
"""

_LEVELS = """\
values = (np.asarray(image, dtype=np.float64) - {black}) * (255 / ({white} - {black}))
        image = Image.fromarray(values.round().clip(0, 255).astype(np.uint8))"""

_NO_LEVELS = 'raise ValueError("more than 8 bits, and no black and white are recorded")'

_COLOR_LEVELS = """
Color images of 16 bits, of which Pillow reads 8, are refused. Read these with another library, and
convert their values v to 255 (v - {black}) / ({white} - {black}) first.
"""

_OF_ARRAYS = """```python
import timm
import torch
{register}
# A local folder, or "hf-hub:OWNER/NAME" once it is uploaded.
model = timm.create_model("local-dir:FOLDER", pretrained=True).eval()
mean, std = (torch.tensor(model.pretrained_cfg[key]).view(-1, 1, 1) for key in ("mean", "std"))
x = (images - mean) / std  # images [B, {channels}, {height}, {width}] in [0, 1]
features = model(x)  # [B, {dim}]
```
"""

_WIDE = """
## Wide features

`readout.safetensors` adds {extra} directions of earlier stages and of the input to the {pooled}
pooled features. It was fitted without labels, on {examples:,} examples.

```python
import widefield

encoder = widefield.load("FOLDER", features="wide")
features = encoder(images)  # [B, {channels}, {height}, {width}] in [0, 1] -> [B, {dim}]
```
"""


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
    config = encoder.config
    height, width = config.image_size
    metadata = {
        "architecture": config.name,
        "parameters": f"{sum(p.numel() for p in encoder.parameters()):,}",
        "features": f"{encoder.dim:,}",
        "images": f"{height} x {width} pixels, {config.channels} channels",
        "resizing": f"{config.interpolation}, {FITS[config.fit]}",
        "normalization": _normalization(config),
    }
    if config.black_white is not None:
        metadata["more than 8 bits"] = _ranges(np.array(config.black_white))
    folder = RunFolder(path=Path(run))
    about = "An image encoder: it turns images into features."
    if folder.settings_file.exists():
        recipe, settings = folder.recipe(), folder.settings()
        about = (
            f"An image encoder that was trained with `{recipe.method.name}`; it turns images into "
            "features."
        )
        metadata |= {
            "trained on": _code(str(settings["data"]).rstrip("/").rpartition("/")[2]),
            "examples": f"{len(folder.manifest.paths()):,}",
            "method": _code(recipe.method.name),
            "views": _code(recipe.views.names),
            "epochs": str(recipe.epochs),
            "batch size": str(recipe.batch_size),
            "seed": str(recipe.seed),
        }
    return _CARD.format(
        title=f"{config.name}, {encoder.dim} features",
        about=about,
        lines=_lines(encoder),
        wide="" if readout is None else _wide_section(readout),
        facts="\n".join(f"- {name}: {value}" for name, value in metadata.items()),
        learned=_section(findings),
        version=__version__,
    )


def _ranges(black_white: NDArray[np.floating]) -> str:
    """Return which values become black and white: 8 bits of all channels, or levels of each."""
    if black_white.ndim == 1:
        return "{:g} becomes 0, {:g} becomes 255".format(*black_white)
    return "; ".join(
        f"channel {k}: {black:g} becomes 0, {white:g} becomes 1"
        for k, (black, white) in enumerate(black_white.tolist())
    )


def _lines(encoder: Encoder) -> str:
    """Return the lines that compute the features of `widefield embed`."""
    config, dim = encoder.config, encoder.dim
    register = _REGISTER if needs_entry(config) else ""
    is_by_channel = config.black_white is not None and len(np.shape(config.black_white)) == 2
    # Such images come from arrays; timm pads with the mean.
    if config.channels != 3 or is_by_channel or config.fit == "pad":
        height, width = config.image_size
        return _OF_ARRAYS.format(
            register=register, channels=config.channels, height=height, width=width, dim=dim
        )
    if config.black_white is None:
        return _OF_FILES.format(register=register, levels=_NO_LEVELS, dim=dim)
    black, white = np.array(config.black_white).tolist()
    lines = _OF_FILES.format(
        register=register, levels=_LEVELS.format(black=black, white=white), dim=dim
    )
    return lines + _COLOR_LEVELS.format(black=black, white=white)


def _normalization(config: EncoderConfig) -> str:
    mean, std = (", ".join(f"{x:.6g}" for x in values) for values in (config.mean, config.std))
    guessed = " (guessed: the weights did not state it)" if config.guessed else ""
    return f"mean {mean}, standard deviation {std} of images in [0, 1]{guessed}"


def _wide_section(readout: Readout) -> str:
    config = readout.config
    channels, height, width = config.input_shape
    return _WIDE.format(
        extra=readout.dim - config.pooled,
        pooled=config.pooled,
        examples=config.examples,
        channels=channels,
        height=height,
        width=width,
        dim=readout.dim,
    )


def _section(findings: Sequence[str]) -> str:
    if not findings:
        return ""
    lines = "\n".join(f"- {_code(line)}" for line in findings)
    return (
        f"\n## What it learned\n\nLinear-probe accuracy between floors and ceilings:\n\n{lines}\n"
    )


def _code(text: str) -> str:
    """Return `text` as Markdown code, without characters that would end it."""
    plain = "".join(c for c in text if is_seen(c)).replace("`", "'")
    return f"`{plain}`"
