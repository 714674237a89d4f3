"""Where the images and sounds of studies come from: files by name, or generated ones."""

import os
from pathlib import Path

import numpy as np

SPOKEN_RATE, NOISE_RATE = 8000, 16_000  # Hz


class Packs:
    """A folder with NAME_train.npz and NAME_test.npz for each data set, as docs/studies.md says.

    `drawn` gets their copies in other orders; default: a folder in theirs.

    Example:
        >>> Packs(Path("data")).spec("cifar10+digits", "test", check=False)
        'data/cifar10_test.npz+digits'
    """

    def __init__(self, folder: Path, drawn: Path | None = None) -> None:
        self.folder, self.drawn = folder, drawn or folder / "drawn"

    def spec(self, data: str, split: str, *, drawn: int | None = None, check: bool = True) -> str:
        """Return the data of one split, as `widefield.pretrain` takes it.

        With a seed `drawn`, a file has its examples in an order that the seed draws, so that a part
        of them is another for every seed.

        Raises:
            ValueError: the file is not there.
        """
        name, plus, planted = data.partition("+")
        if name == "photos":
            return f"photos:{split}{plus}{planted}"
        if name != "fsdd":
            file = self.file(f"{name}_{split}", check=check)
            return f"{file if drawn is None else self._in_order(file, drawn)}{plus}{planted}"
        if planted:
            noise = self.file("noise", check=check)
            planted = planted.replace("background", f"background:source={noise}")
        file = self.file(name, check=check)
        file = file if drawn is None else self._in_order(file, drawn)
        return f"{file}:{split}{plus}{planted}"

    def _in_order(self, file: Path, seed: int) -> Path:
        """Return a copy of a file whose examples are in an order drawn by a seed."""
        path = self.drawn / f"{file.stem}.{seed}.npz"
        if not path.exists():
            with np.load(file) as arrays:
                _save(path, **_reordered(dict(arrays), np.random.default_rng(seed)))
        return path

    def file(self, name: str, *, check: bool = True) -> Path:
        """Return a file by its name without `.npz`.

        Raises:
            ValueError: the file is not there.
        """
        path = self.folder / f"{name}.npz"
        if check and not path.is_file():
            raise ValueError(
                f"{path} is not there: name the folder that holds {name}.npz by --data"
            )
        return path


def generated(folder: Path) -> Packs:
    """Write small packs of generated images and sounds into `folder`, unless they are there.

    The images are scikit-learn's digits on colored backgrounds, so their classes can be learned.
    """
    for name, classes in (("cifar10", 10), ("cifar100", 10), ("mnist", 10)):
        for split, n in (("train", 160), ("test", 96)):
            _save(folder / f"{name}_{split}.npz", **_images(name, split, n, classes))
    _save(folder / "fsdd.npz", **_spoken())
    _save(folder / "noise.npz", **_noise())
    return Packs(folder)


def _reordered(arrays: dict[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return the arrays of a file with its examples, the entries of its labels, in random order."""
    n = len(arrays["labels"])
    order = rng.permutation(n)
    moved = {k: x[order] if x.shape[:1] == (n,) else x for k, x in arrays.items()}
    if "offsets" in arrays:  # examples of many lengths, one after the other
        flat = "audio" if "audio" in arrays else "bytes"
        parts = np.split(arrays[flat], arrays["offsets"][1:-1])
        moved[flat] = np.concatenate([parts[k] for k in order])
        moved["offsets"] = np.cumsum([0, *(len(parts[k]) for k in order)])
    return moved


def _save(path: Path, **arrays: np.ndarray | int) -> None:
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.stem}.{os.getpid()}.npz")
    np.savez(draft, **arrays)  # type: ignore[arg-type]
    draft.replace(path)  # several processes may write the same file


def _images(name: str, split: str, n: int, classes: int) -> dict[str, np.ndarray]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    rng = np.random.default_rng([len(name), split == "train"])
    rows = rng.permutation(len(digits.target))[:n]
    gray = (digits.images[rows] * 15).repeat(4, axis=1).repeat(4, axis=2).astype(np.uint8)
    labels = digits.target[rows] % classes
    names = np.array([str(c) for c in range(classes)])
    if name == "mnist":
        return {"images": gray[:, 2:30, 2:30], "labels": labels, "classes": names}
    background = rng.integers(0, 120, (n, 1, 1, 3), dtype=np.uint8)
    images = np.maximum(gray[..., None], background)
    return {"images": images, "labels": labels, "classes": names}


def _spoken() -> dict[str, np.ndarray | int]:
    """Tones whose pitch is the digit, of two speakers, in takes 0 to 9, in random order."""
    rng, seconds = np.random.default_rng(1), np.arange(SPOKEN_RATE // 4) / SPOKEN_RATE
    about = [(digit, who, take) for digit in range(10) for who in range(2) for take in range(10)]
    rng.shuffle(about)
    clips = [
        np.sin(2 * np.pi * (200 + 90 * digit + 20 * who) * seconds + rng.uniform(0, 6))
        for digit, who, _ in about
    ]
    digit, who, take = (np.array(column) for column in zip(*about, strict=True))
    return {
        "audio": (np.concatenate(clips) * 8000).astype(np.int16),
        "offsets": np.arange(len(clips) + 1) * len(seconds),
        "labels": digit,
        "classes": np.array([str(d) for d in range(10)]),
        "speakers": who,
        "speaker_names": np.array(["a", "b"]),
        "takes": take,
        "sample_rate": SPOKEN_RATE,
    }


def _noise() -> dict[str, np.ndarray | int]:
    """Three colors of noise, 8 s each."""
    rng = np.random.default_rng(2)
    white = rng.normal(size=(3, 8 * NOISE_RATE))
    white[1] = np.convolve(white[1], np.ones(16) / 4, mode="same")
    white[2] = np.diff(white[2], prepend=0.0)
    return {
        "audio": (white.ravel() * 2000).clip(-32768, 32767).astype(np.int16),
        "offsets": np.arange(4) * white.shape[1],
        "labels": np.arange(3),
        "classes": np.array(["babble", "machinery", "traffic"]),
        "sample_rate": NOISE_RATE,
    }
