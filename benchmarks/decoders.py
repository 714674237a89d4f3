"""Decoders of JPEG files, turn by turn: images per second, and how far pixels are from Pillow's.

    pip install simplejpeg PyTurboJPEG
    python benchmarks/decoders.py --json benchmarks/results/decoders.json

Photographs of scikit-image as mosaics of 500 pixels are decoded whole, and scaled by the decoder
to half their size. What is not installed, or lacks its library, is listed as `left_out`.
"""

import io
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg

from ratios.command import Result, command
from ratios.timing import turn_by_turn
from widefield.data import open_dataset

Decode = Callable[[bytes, bool], np.ndarray | None]
"""A decoder of files, whole or scaled; None if it cannot scale."""


def jpegs(count: int, side: int = 500) -> list[bytes]:
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


DECODERS: dict[str, Decode] = {
    "torchvision": torchvision,
    "simplejpeg": simplejpeg,
    "PyTurboJPEG": pyturbojpeg,
}
"""Package -> its decoder."""


def bench(*, images: int = 40, rounds: int = 10) -> Result:
    """Return the rate of each decoder, its ratio to Pillow's, and how far its pixels are."""
    files, rows, left_out = jpegs(images), list[Result](), {}
    torch.set_num_threads(1)
    for package, decode in DECODERS.items():
        try:
            found = [compare(files, decode, scaled, rounds) for scaled in (False, True)]
        except (ImportError, RuntimeError) as error:
            left_out[package] = str(error).splitlines()[0]
            continue
        rows += [{"decoder": f"{package} {version(package)}", **row} for row in found if row]
    return {"rows": rows, "pillow": version("pillow"), "left_out": left_out}


def compare(files: list[bytes], decode: Decode, scaled: bool, rounds: int) -> Result | None:
    """Return the numbers of a decoder; None if it cannot scale."""
    pixels = [decode(data, scaled) for data in files]
    if pixels[0] is None:
        return None

    def all_by(decode: Decode) -> Callable[[], Any]:
        return lambda: [decode(data, scaled) for data in files]

    both = {"pillow": all_by(pillow), "decoder": all_by(decode)}
    seconds = turn_by_turn(both, rounds, torch.device("cpu"), time.process_time)
    gaps = [np.abs(x.astype(int) - pillow(d, scaled)) for x, d in zip(pixels, files, strict=True)]
    return {
        "scaled": scaled,
        "images_per_second": len(files) / statistics.median(seconds["decoder"]),
        "over_pillow": statistics.median(np.divide(seconds["pillow"], seconds["decoder"]).tolist()),
        "largest_difference": int(np.max(gaps)),
    }


def main() -> None:
    """Measure as the command line says."""
    command(bench)


if __name__ == "__main__":
    main()
