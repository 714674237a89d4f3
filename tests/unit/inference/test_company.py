"""Features of an example do not depend on the examples beside it, for every source and call."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from widefield import Embedder, embed
from widefield.data import open_dataset
from widefield.encoders import Encoder, build_encoder

COUNT, SIDE = 8, 16
RNG = np.random.default_rng
# Each of another brightness; the first is nearly black.
BYTES = (
    RNG(0).integers(0, 256, (COUNT, SIDE, SIDE, 3))
    * np.linspace(0.05, 1, COUNT)[:, None, None, None]
).astype(np.uint8)
BYTES[-1, 0, :2] = [[0, 0, 0], [255, 255, 255]]
ENCODER = build_encoder("resnet-tiny", image_size=SIDE, seed=0).eval()
WINDOWS = build_encoder("conv1d", image_size=(1, 64), channels=3, seed=0).eval()
SOUNDS = build_encoder("resnet-tiny", image_size=(1, 4000), channels=1, rate=4000, seed=0).eval()

ARRAYS: dict[str, NDArray[Any]] = {
    "bytes": BYTES,
    "unit floats": (BYTES / 255).astype(np.float32),
    "unit floats of 64 bits": BYTES / 255,
    "floats to 255": BYTES.astype(np.float32),
    "fractions to 255": np.clip(BYTES + 0.3, 0, 255).astype(np.float32),
    "16 bits": BYTES.astype(np.uint16) * 257,
}


def files(values: NDArray[Any], folder: Path) -> list[Path]:
    """Write images in the format that holds them: PNG of 8 or 16 bits, TIFF of floats."""
    folder.mkdir(exist_ok=True)
    paths = []
    for i, image in enumerate(values):
        gray = image if image.dtype == np.uint8 else image[..., 0]
        suffix = "tiff" if gray.dtype.kind == "f" else "png"
        paths.append(folder / f"{i}.{suffix}")
        Image.fromarray(gray).save(paths[-1])
    return paths


def npz(values: NDArray[Any], folder: Path) -> str:
    np.savez(folder / "images.npz", x=values)
    return str(folder / "images.npz")


SOURCES: dict[str, Callable[[NDArray[Any], Path], Any]] = {
    "array": lambda values, _: values,
    "mapping": lambda values, _: {"x": values},
    "npz": npz,
    "files": files,
}


def features(encoder: Any, data: Any) -> NDArray[np.float32]:
    return embed(encoder, data, quiet=True).features


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        *(("array", kind) for kind in ARRAYS),
        *(("files", kind) for kind in ("bytes", "unit floats", "16 bits")),
        *(("mapping", "floats to 255"), ("npz", "16 bits")),
    ],
)
def test_images_alone_have_the_features_that_they_have_together(
    source: str, kind: str, tmp_path: Path
) -> None:
    values = ARRAYS[kind]
    shown = BYTES if source != "files" or kind == "bytes" else BYTES[..., :1].repeat(3, 3)
    together = features(ENCODER, SOURCES[source](values, tmp_path))
    tolerance = 2e-2 if "fractions" in kind else 1e-5  # their values differ by less than a level
    np.testing.assert_allclose(together, features(ENCODER, shown), atol=tolerance)
    alone = [
        features(ENCODER, SOURCES[source](values[i : i + 1], tmp_path))
        for i in range(1 if kind != "16 bits" else COUNT // 2, COUNT)
    ]
    np.testing.assert_allclose(np.concatenate(alone), together[-len(alone) :], atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(sorted(ARRAYS)),
    st.lists(st.integers(1, COUNT - 1), min_size=1, max_size=4),
    st.sampled_from(["random", "pixels", "run"]),
    st.floats(-4, 4),
)
def test_the_range_of_fit_holds_for_all_later_images(
    kind: str, rows: list[int], name: str, shift: float
) -> None:
    values = ARRAYS[kind]
    if name != "run" and values.dtype.kind == "f":
        values = values * np.float32(2.5) + np.float32(shift)  # of any scale
    embedder = Embedder(ENCODER if name == "run" else name).fit(values)
    together = embedder.transform(values)
    np.testing.assert_allclose(embedder.transform(values[rows]), together[rows], atol=1e-5)


def test_an_overshoot_changes_its_image_alone() -> None:
    values = ARRAYS["unit floats"].copy()
    values[3, 2, 2] = 1.003
    values[4, 0, 0] = -0.003
    others = [i for i in range(COUNT) if i not in (3, 4)]
    for encoder in (ENCODER, "random", "pixels"):
        found, exact = (features(encoder, x)[others] for x in (values, ARRAYS["unit floats"]))
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (ARRAYS["unit floats"] * 1.4, "floats from 0 to 1.4"),
        (ARRAYS["unit floats"] - 0.1, "floats from -0.1 to 0.9"),
        (ARRAYS["floats to 255"] * 40, "floats from 0 to 10200"),
        (ARRAYS["floats to 255"] - 128, "floats from -128 to 127"),
        (np.concatenate([ARRAYS["unit floats"], ARRAYS["floats to 255"]]), "image 0 has floats"),
        (BYTES.astype(np.uint16), "integers from 0 to 255 of more than 8 bits"),
        (BYTES.astype(np.int16) - 100, "integers from -100 to 155 of more than 8 bits"),
    ],
)
@pytest.mark.parametrize("source", ["array", "files"])
def test_another_scale_is_refused(
    source: str, values: NDArray[Any], message: str, tmp_path: Path
) -> None:
    if source == "files" and values.dtype == np.int16:
        return  # no such PNG
    with pytest.raises(ValueError, match=r"floats|integers") as caught:
        features(ENCODER, SOURCES[source](values, tmp_path))
    if source == "array":
        assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_scale_than_that_of_fit_is_refused() -> None:
    unit, to_255 = ARRAYS["unit floats"], ARRAYS["floats to 255"]
    for encoder in (ENCODER, "random"):
        with pytest.raises(ValueError, match="others are on a scale of 0 to 255"):
            Embedder(encoder).fit(to_255).transform(unit)
        with pytest.raises(ValueError, match="0 to 1 are recorded"):
            Embedder(encoder).fit(unit).transform(to_255)


def test_bytes_and_floats_of_a_run_on_floats_are_the_same() -> None:
    dark = (BYTES // 8).astype(np.float32) + np.float32(0.25)
    form = open_dataset(dark).form
    config = {"image_size": SIDE, "black_white": form.black_white, "seed": 0}
    run: Encoder = build_encoder("resnet-tiny", **config).eval()
    np.testing.assert_allclose(features(run, dark), features(run, BYTES // 8), atol=0.05)


def windows(rows: slice) -> dict[str, Any]:
    x = RNG(2).normal(size=(COUNT, 3, 64)) * np.linspace(0.1, 9, COUNT)[:, None, None]
    return {"windows": x[rows]}


def test_windows_and_sounds() -> None:
    x = RNG(1).normal(size=(COUNT, 4000)) * np.geomspace(1e-3, 0.2, COUNT)[:, None]

    def sounds(rows: slice) -> Any:
        return {"sounds": x[rows].astype(np.float32), "sample_rate": np.array(4000)}

    cases: list[tuple[Encoder, Callable[[slice], Any]]] = [(WINDOWS, windows), (SOUNDS, sounds)]
    for encoder, made in cases:
        together = features(encoder, made(slice(None)))
        for i in range(COUNT):
            alone = features(encoder, made(slice(i, i + 1)))
            np.testing.assert_allclose(alone[0], together[i], atol=1e-4)
