"""Decoders of JPEG files, turn by turn: images per second, and how far pixels are from Pillow's.

    pip install simplejpeg PyTurboJPEG
    python benchmarks/decoders.py --json benchmarks/results/decoders.json

Photographs of scikit-image as mosaics of 500 pixels are decoded whole, and scaled by the decoder
to half their size. What is not installed, or lacks its library, is listed as `left_out`.
"""

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from widefield.core.hardware import choose_device, machine
from widefield.data import open_dataset


def jpegs(count: int = 40, side: int = 500) -> list[bytes]:
    """Return mosaics of photographs as JPEG files of quality 90."""
    crops, files, rng = open_dataset("photos").images, [], np.random.default_rng(0)
    for _ in range(count):
        tiles = crops[rng.choice(len(crops), 256)].reshape(16, 16, 32, 32, 3).swapaxes(1, 2)
        image = Image.fromarray(tiles.reshape(512, 512, 3)).resize((side, side))
        image.save(file := io.BytesIO(), "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def pillow(data: bytes, scaled: bool) -> np.ndarray:
    """Decode by Pillow."""
    image = Image.open(io.BytesIO(data))
    if scaled:
        image.draft("RGB", (250, 250))
    return np.asarray(image)


def torchvision(data: bytes, scaled: bool) -> np.ndarray | None:
    """Decode by torchvision, which cannot scale."""
    x = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    return None if scaled else decode_jpeg(x, mode=ImageReadMode.RGB).permute(1, 2, 0).numpy()


def simplejpeg(data: bytes, scaled: bool) -> np.ndarray:
    """Decode by simplejpeg, which brings its own libjpeg-turbo."""
    from simplejpeg import decode_jpeg

    return decode_jpeg(data, **({"min_height": 250, "min_width": 250} if scaled else {}))


def pyturbojpeg(data: bytes, scaled: bool) -> np.ndarray:
    """Decode by PyTurboJPEG, which needs the library of the system."""
    from turbojpeg import TJPF_RGB, TurboJPEG

    return TurboJPEG().decode(data, TJPF_RGB, (1, 2) if scaled else None)


def compare(files: list[bytes], decode: Callable, scaled: bool, rounds: int) -> dict | None:
    """Return the rate of a decoder, its ratio to Pillow's, and the largest difference of pixels."""
    if decode(files[0], scaled) is None:
        return None
    seconds: dict = {pillow: [], decode: []}
    for _ in range(rounds):
        for each in (pillow, decode):
            began = time.process_time()
            pixels = [each(data, scaled) for data in files]
            seconds[each].append(time.process_time() - began)
    gaps = [np.abs(x.astype(int) - pillow(d, scaled)) for x, d in zip(pixels, files, strict=True)]
    return {
        "scaled": scaled,
        "images_per_second": len(files) / statistics.median(seconds[decode]),
        "over_pillow": statistics.median(np.divide(seconds[pillow], seconds[decode]).tolist()),
        "largest_difference": int(np.max(gaps)),
    }


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--json", type=Path, required=True)
file, images, rows, left_out = parser.parse_args().json, jpegs(), [], {}
torch.set_num_threads(1)
packages = {torchvision: "torchvision", simplejpeg: "simplejpeg", pyturbojpeg: "PyTurboJPEG"}
for decoder, package in packages.items():
    try:
        found = [compare(images, decoder, scaled, 10) for scaled in (False, True)]
    except (ImportError, RuntimeError) as error:
        left_out[package] = str(error).splitlines()[0]
        continue
    rows += [{"decoder": f"{package} {version(package)}", **row} for row in found if row]
result = {"rows": rows, "pillow": version("pillow"), "left_out": left_out}
file.write_text(json.dumps({**result, "machine": machine(choose_device("cpu"))}, indent=2) + "\n")
print(file.read_text())
