"""Image folders and encoded images: listing, decoding, bringing to one size."""

import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from widefield.data.dataset import Skipped
from widefield.data.examples import Examples

PIXEL_LIMIT = 100_000_000
"""A larger image is skipped unread: a few kilobytes can decompress to gigabytes."""

_NOT_RASTER = {"EPS", "WMF", "MPEG", "HDF5", "GRIB", "BUFR"}
_LARGEST_SIDE = 224
_SIZE_SAMPLE = 1_000
_FILES_PER_TASK = 32

File = Path | memoryview
Size = tuple[int, int]
"""Height and width in pixels."""


def read_folder(folder: Path) -> Examples:
    """List the images under `folder`, by sorted relative path; nothing is decoded.

    First-level subfolders, where there are any, are the classes of the task `class`; an image
    outside them is of class ".". Hidden files and folders are not read.
    """
    suffixes = _raster_suffixes()
    paths = sorted(p for p in _walk(folder) if os.path.splitext(p)[1].lower() in suffixes)
    if not paths:
        raise ValueError(
            f"no images under '{folder}'; expected files such as .jpg, .png, .tif or .webp"
        )
    top = [path.split("/", 1)[0] if "/" in path else "." for path in paths]
    labels, classes = {}, {}
    if set(top) != {"."}:
        names, ids = np.unique(top, return_inverse=True)
        labels["class"], classes["class"] = ids.astype(np.int64), tuple(names.tolist())
    files = [folder / path for path in paths]
    return Examples(
        # A file name need not be valid text; its printable form is.
        names=[os.fsencode(path).decode(errors="backslashreplace") for path in paths],
        labels=labels,
        classes=classes,
        files=files,
        origin=tuple(files),
    )


def _walk(folder: Path) -> Iterator[str]:
    """Yield the relative posix path of every visible file, in no particular order."""
    pending, seen = [(str(folder), "")], set()
    while pending:
        directory, prefix = pending.pop()
        try:
            status = os.stat(directory)
            if (status.st_dev, status.st_ino) in seen:  # a link back up the tree
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(directory) as entries:
                visible = [(e.name, e.path, e.is_dir()) for e in entries if e.name[0] != "."]
        except OSError as error:
            raise ValueError(f"cannot list folder '{directory}': {error.strerror}") from None
        for name, path, is_folder in visible:
            if is_folder:
                pending.append((path, f"{prefix}{name}/"))
            else:
                yield prefix + name


def _raster_suffixes() -> frozenset[str]:
    Image.init()
    return frozenset(
        suffix
        for suffix, format_name in Image.registered_extensions().items()
        if format_name in Image.OPEN and format_name not in _NOT_RASTER
    )


def common_size(files: Sequence[File]) -> Size:
    """Choose one (height, width) for all of `files` from the headers of at most 1,000 of them.

    One size that all share and that is at most 224 on each side is kept as it is. Otherwise
    images become squares of the median shorter side, rounded to a multiple of 32, at most 224.
    """
    sample = [files[i] for i in np.linspace(0, len(files) - 1, _SIZE_SAMPLE).astype(int)]
    sizes = []
    with _quiet_decoders():
        for file in dict.fromkeys(sample):
            try:
                with _open(file) as image:
                    sizes.append(_upright_size(image))
            except Exception:  # reported with its reason when it is decoded
                continue
    if not sizes:
        return _LARGEST_SIDE, _LARGEST_SIDE
    if len(set(sizes)) == 1 and max(sizes[0]) <= _LARGEST_SIDE:
        return sizes[0]
    median = float(np.median([min(size) for size in sizes]))
    side = min(max(32 * round(median / 32), 32), _LARGEST_SIDE)
    return side, side


def decode_all(
    files: Sequence[File],
    names: Sequence[str],
    out: NDArray[np.uint8],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[int, Skipped], int]:
    """Decode files[i] into out[i] [n, H, W, 3], in parallel.

    Returns the files that failed, by position (their rows in `out` are undefined), and how many
    images had another size.
    """
    size: Size = (out.shape[1], out.shape[2])
    failed: dict[int, Skipped] = {}
    resized = 0
    stop = threading.Event()

    def decode_task(first: int) -> tuple[dict[int, str], int]:
        reasons, changed = {}, 0
        for i in range(first, min(first + _FILES_PER_TASK, len(files))):
            if stop.is_set():
                break
            try:
                out[i], was_resized = decode(files[i], size)
                changed += was_resized
            except Exception as error:  # decoders raise every kind of error on damaged files
                reasons[i] = _reason(error)
        return reasons, changed

    with _quiet_decoders(), ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            starts = range(0, len(files), _FILES_PER_TASK)
            for start, (reasons, changed) in zip(
                starts, pool.map(decode_task, starts), strict=True
            ):
                failed |= {i: Skipped(names[i], reason) for i, reason in reasons.items()}
                resized += changed
                if progress is not None:
                    progress(min(start + _FILES_PER_TASK, len(files)), len(files))
        except BaseException:  # an interrupt must not wait for a million files
            stop.set()
            raise
    return failed, resized


def decode(file: File, size: Size) -> tuple[NDArray[np.uint8], bool]:
    """Decode one image, upright, to RGB uint8 [H, W, 3]; also say whether it was resized.

    The shorter side is brought to `size` and the rest cut off around the centre. Transparent
    pixels show white; 16-bit values keep their upper byte's scale (v / 257); of an animation the
    first frame is taken. Raises whatever the decoder raises on a damaged file.
    """
    with _open(file) as image:
        # JPEG only: decoding at a fraction of the resolution is several times faster, and
        # twice the wanted size leaves the resampling filter enough to average.
        image.draft(None, (2 * max(size), 2 * max(size)))
        image.load()
        was_size = _upright_size(image)
        rgb = _to_rgb(ImageOps.exif_transpose(image))
    if was_size != size:
        rgb = ImageOps.fit(rgb, (size[1], size[0]), Image.Resampling.BICUBIC)
    return np.asarray(rgb), was_size != size


def _open(file: File) -> Image.Image:
    image = Image.open(file if isinstance(file, Path) else BytesIO(file))
    if image.width * image.height > PIXEL_LIMIT:
        image.close()
        raise ValueError(
            f"{image.width}x{image.height} pixels, more than the limit of "
            f"{PIXEL_LIMIT // 1_000_000} million"
        )
    return image


def _upright_size(image: Image.Image) -> Size:
    """Return (height, width) after the EXIF orientation is applied."""
    # Asking a PNG for EXIF data that its header lacks would decode all of it.
    has_exif = image.format != "PNG" or "exif" in image.info
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1) if has_exif else 1
    if orientation not in (5, 6, 7, 8):
        return image.height, image.width
    if image.format == "TIFF":  # the one decoder that turns the image by itself
        image.load()
        return image.height, image.width
    return image.width, image.height


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits, or 32 that hold 16
        return Image.fromarray(_scaled(np.asarray(image), 65535)).convert("RGB")
    if image.mode == "F":
        return Image.fromarray(_scaled(np.asarray(image), 1)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")


def _scaled(values: NDArray[np.generic], high: int) -> NDArray[np.uint8]:
    wide = values.astype(np.float64)
    if not (wide.min() >= 0 and wide.max() <= high):
        raise ValueError(f"pixel values outside 0 to {high}")
    return np.round(wide * (255 / high)).astype(np.uint8)


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"more pixels than the limit of {PIXEL_LIMIT // 1_000_000} million"
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def _quiet_decoders() -> Iterator[None]:
    """Keep decoders' warnings about odd files off the screen: what fails is reported by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def resize_array(images: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """Resize uint8 [n, H, W, C]: shorter side to `size`, the rest cut off around the centre."""
    height, width = images.shape[1:3]
    scale = max(size[0] / height, size[1] / width)
    middle = (max(round(height * scale), size[0]), max(round(width * scale), size[1]))
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    x = torch.nn.functional.interpolate(x, size=middle, mode="bicubic", antialias=True)
    top, left = (middle[0] - size[0]) // 2, (middle[1] - size[1]) // 2
    x = x[:, :, top : top + size[0], left : left + size[1]]
    return np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
