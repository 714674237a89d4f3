"""The record of preprocessing: what is exported computes the features of `embed`."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import timm
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

import widefield
from made_images import png16
from made_profiles import ADOBE_RGB, DISPLAY_P3, SRGB_COLUMNS, gray_profile, rgb_profile
from widefield.core.form import InputSpec, center_fit
from widefield.core.types import Fit
from widefield.data import open_dataset
from widefield.data.decode.images import decode
from widefield.encoders import (
    build_encoder,
    load_encoder,
    load_model_folder,
    save_encoder,
)
from widefield.encoders.preprocess import Preprocess

STATISTICS = {"mean": (0.3, 0.4, 0.5), "std": (0.2, 0.25, 0.3)}


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """Smooth colors with sharp edges, so that every filter and cut gives other pixels."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    stripes = 40 * (np.add.outer(np.arange(height), np.arange(width)) % 7 < 2)
    return Image.fromarray((np.asarray(smooth) // 2 + stripes[..., None]).astype(np.uint8))


def png(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()


def jpeg(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=95, **options)
    return stream.getvalue()


def deep(low: int, high: int) -> list[bytes]:
    """Gray images of 16 bits whose values lie between `low` and `high`."""
    return [
        png16((low + np.asarray(picture(*size, seed).convert("L")) * ((high - low) / 255)).round())
        for seed, size in enumerate(((64, 64), (40, 90), (100, 31)))
    ]


def turned() -> bytes:
    exif = Image.Exif()
    exif[274] = 6
    return jpeg(picture(50, 80), exif=exif)


def clear(profile: bytes | None = None) -> bytes:
    image = picture(48, 70).convert("RGBA")
    image.putalpha(Image.fromarray(np.linspace(0, 255, 48 * 70).reshape(48, 70).astype(np.uint8)))
    return png(image, icc_profile=profile)


P3, ADOBE = rgb_profile(*DISPLAY_P3), rgb_profile(*ADOBE_RGB)

FILES: dict[str, list[bytes]] = {
    "square": [png(picture(64, 64)), png(picture(32, 32)), png(picture(20, 20))],
    "wide and tall": [png(picture(40, 90)), png(picture(90, 41)), jpeg(picture(20, 31))],
    "photos": [jpeg(picture(300, 400)), jpeg(picture(401, 300))],
    "12 bits in 16": deep(0, 4095),
    "CT with an offset": deep(31_744, 34_800),
    "thermal": deep(7_000, 9_000),
    "profiles": [png(picture(40, 60), icc_profile=P3), jpeg(picture(64, 64), icc_profile=ADOBE)],
    "gray profile": [png(picture(40, 60).convert("L"), icc_profile=gray_profile(1.0))],
    "gray with a profile of colors": [png(picture(40, 60).convert("L"), icc_profile=P3)],
    "two levels with a profile": [png(picture(40, 60).convert("1"), icc_profile=P3)],
    "almost sRGB": [png(picture(64, 50), icc_profile=rgb_profile(SRGB_COLUMNS, 2.2))],
    "damaged profile": [png(picture(40, 60), icc_profile=b"damaged")],
    "turned": [turned()],
    "transparent": [clear(), clear(P3)],
    "inks": [jpeg(picture(40, 60).convert("CMYK"))],
    "palette": [png(picture(40, 60).quantize(16))],
}


def written(folder: Path, contents: list[bytes]) -> Path:
    folder.mkdir()
    for i, content in enumerate(contents):
        suffix = ".jpg" if content[:2] == b"\xff\xd8" else ".png"
        (folder / f"{i}{suffix}").write_bytes(content)
    return folder


def saved(
    folder: Path, size: int | tuple[int, int], data: Path | None = None, fit: Fit = "crop"
) -> Path:
    """Save an encoder, for deep images with the black and white of `data`."""
    levels = None if data is None else open_dataset(data).black_white
    encoder = build_encoder(
        "resnet-tiny", image_size=size, stem="native", black_white=levels, seed=0, **STATISTICS
    )
    encoder.config = replace(encoder.config, fit=fit)
    save_encoder(encoder.eval(), folder)
    return folder


def embedded(encoder: Path, data: Path) -> dict[str, np.ndarray]:
    found = widefield.embed(encoder, data, quiet=True)
    return dict(zip(found.paths, found.features, strict=True))


def difference(a: Any, b: Any) -> float:
    a, b = (np.asarray(x, dtype=np.float64).ravel() for x in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def lines_of_card(folder: Path) -> str:
    found = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1].replace("FOLDER", str(folder))


@pytest.mark.parametrize(
    ("kind", "size"),
    [*((kind, 32) for kind in FILES), ("wide and tall", (24, 40)), ("photos", (50, 30))],
    ids=str,
)
def test_the_lines_of_the_card_compute_the_features_of_embed(
    kind: str, size: Any, tmp_path: Path
) -> None:
    data = written(tmp_path / "data", FILES[kind])
    encoder = saved(tmp_path / "encoder", size, data)
    widefield.export(encoder, tmp_path / "model")
    ours = embedded(encoder, data)
    lines = lines_of_card(tmp_path / "model")
    assert len(ours) == len(FILES[kind])
    for name, h in ours.items():
        scope: dict[str, Any] = {}
        exec(lines.replace("image.png", str(data / name)), scope)
        assert difference(scope["features"].detach(), h) < 1e-4
    # The record is in the folder: it opens the data as the encoder does.
    assert all(difference(embedded(tmp_path / "model", data)[n], h) < 1e-5 for n, h in ours.items())


@pytest.mark.parametrize("kind", [2, 6], ids=["RGB", "RGBA"])
def test_the_lines_of_the_card_refuse_what_pillow_cuts_to_8_bits(kind: int, tmp_path: Path) -> None:
    """16 bits a channel would be read as their upper bytes without a word."""
    values = np.arange(64 * {2: 3, 6: 4}[kind]).reshape(8, 8, -1) * 250
    color = png16(values, kind=kind)
    data = written(tmp_path / "data", [color, png(picture(40, 60))])
    widefield.export(saved(tmp_path / "encoder", 32, data), tmp_path / "model")
    lines = lines_of_card(tmp_path / "model")
    with pytest.raises(ValueError, match="Pillow reads 8 of the 16 bits"):
        exec(lines.replace("image.png", str(data / "0.png")), {})
    exec(lines.replace("image.png", str(data / "1.png")), {})
    with Image.open(data / "0.png") as image:
        assert image.mode in ("RGB", "RGBA")  # the control: 8 bits a channel


def before(folder: Path, data: Path) -> dict[str, Tensor]:
    """The features of the configuration that was written earlier: bilinear, squashed."""
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    cfg = timm.data.resolve_model_data_config(model)
    cfg |= {"interpolation": "bilinear", "crop_mode": "squash"}
    return timms(model, cfg, data)


def timms(model: torch.nn.Module, cfg: dict[str, Any], data: Path) -> dict[str, Tensor]:
    transform = timm.data.create_transform(**cfg)
    with torch.no_grad():
        return {
            file.name: model(transform(Image.open(file).convert("RGB"))[None])
            for file in data.iterdir()
        }


@pytest.mark.parametrize(("size", "fit"), [(32, "crop"), ((50, 30), "crop"), (32, "squash")])
def test_timms_own_transform_computes_the_features_of_embed(
    size: Any, fit: Fit, tmp_path: Path
) -> None:
    files = [*FILES["wide and tall"], *FILES["photos"], png(picture(144, 128))]
    data = written(tmp_path / "data", files)
    encoder = saved(tmp_path / "encoder", size, fit=fit)
    widefield.export(encoder, tmp_path / "model")
    ours = embedded(encoder, data)
    model = timm.create_model(f"local-dir:{tmp_path / 'model'}", pretrained=True).eval()
    theirs = timms(model, timm.data.resolve_model_data_config(model), data)
    assert max(difference(theirs[name], h) for name, h in ours.items()) < 1e-4
    earlier = before(tmp_path / "model", data)  # the control
    assert max(difference(earlier[name], h) for name, h in ours.items()) > 0.05


@given(
    shape=st.tuples(st.integers(4, 120), st.integers(4, 120)),
    size=st.one_of(
        st.integers(8, 48).map(lambda side: (side, side)),
        st.tuples(st.integers(8, 48), st.integers(8, 48)),
    ),
)
def test_every_pixel_is_that_of_timms_center_crop(
    shape: tuple[int, int], size: tuple[int, int]
) -> None:
    (height, width), (top, left) = center_fit(shape, size)
    assume(max(height, width) <= 16 * max(size))  # or it is cut before it is resized
    content = png(picture(*shape))
    transform = timm.data.create_transform(
        (3, *size), interpolation="bicubic", crop_pct=1.0, crop_mode="center", normalize=False
    )
    expected = transform(Image.open(io.BytesIO(content))).permute(1, 2, 0).numpy()
    pixels = decode(memoryview(content), size=size).pixels
    assert pixels is not None
    np.testing.assert_array_equal(pixels, expected)
    assert top + size[0] <= height
    assert left + size[1] <= width


def test_a_very_long_image_needs_little_memory() -> None:
    strip = png(Image.fromarray(np.tile(np.asarray(picture(4, 400)), (1, 250, 1))))
    pixels = decode(memoryview(strip), size=(64, 64)).pixels  # 1,600,000 columns before the cut
    assert pixels is not None
    assert pixels.shape == (64, 64, 3)
    assert pixels.std() > 5


@given(
    shape=st.tuples(st.integers(5, 90), st.integers(5, 90)),
    size=st.tuples(st.integers(8, 40), st.integers(8, 40)),
    square=st.booleans(),
    fit=st.sampled_from(("crop", "pad", "squash")),
)
def test_the_module_resizes_as_the_decoder_does(
    shape: tuple[int, int], size: tuple[int, int], square: bool, fit: Fit
) -> None:
    size = (size[0], size[0]) if square else size
    height, width = sorted(shape)
    content = png(picture(height, width))
    expected = decode(memoryview(content), size=size, fit=fit).pixels
    assert expected is not None
    pixels = torch.from_numpy(np.array(Image.open(io.BytesIO(content))))[None]
    preprocess = Preprocess(InputSpec(image_size=size, fit=fit))
    x = preprocess(pixels)[0].permute(1, 2, 0) * 255
    difference = np.abs(x.numpy() - expected)
    # Pillow may take the passes in the other order where the height is reduced more than the
    # width, as of some tall images below, and round differently.
    reduced_more = fit == "squash" and size[0] < height and size[0] * width < size[1] * height
    assert difference.mean() < 0.5 if reduced_more else difference.max() < 1e-3
    tall = preprocess(pixels.transpose(1, 2))[0].permute(1, 2, 0) * 255
    turned_back = memoryview(png(Image.fromarray(pixels[0].transpose(0, 1).numpy())))
    upright = decode(turned_back, size=size, fit=fit)
    assert upright.pixels is not None
    assert np.abs(tall.numpy() - upright.pixels).mean() < 0.5


@pytest.mark.parametrize(
    ("kind", "size", "fit"), [("wide and tall", (24, 40), "crop"), ("thermal", 32, "pad")], ids=str
)
def test_onnx_with_preprocessing_takes_pixels_of_any_size(
    kind: str, size: Any, fit: Fit, tmp_path: Path
) -> None:
    data = written(tmp_path / "data", FILES[kind])
    encoder = saved(tmp_path / "encoder", size, data, fit)
    widefield.export(encoder, tmp_path / "model.onnx", preprocess=True)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    wanted = np.float32 if kind == "thermal" else np.uint8
    ours = embedded(encoder, data)
    for name, h in ours.items():
        pixels = np.asarray(Image.open(data / name)).astype(wanted)
        pixels = np.repeat(pixels[..., None], 3, -1) if pixels.ndim == 2 else pixels
        (found,) = session.run(None, {"images": np.stack([pixels, pixels])})
        assert difference(found[1], h) < (1e-4 if pixels.shape[1] >= pixels.shape[0] else 1e-2)
    (entry,) = (
        e.value for e in onnx.load(tmp_path / "model.onnx").metadata_props if e.key == "widefield"
    )
    config = load_encoder(encoder).config
    assert json.loads(entry) == json.loads(json.dumps(config.record()))
    assert (config.black_white is not None) == (kind == "thermal")


def test_preprocessing_is_for_images_and_onnx(tmp_path: Path) -> None:
    encoder = build_encoder("conv1d", channels=1, image_size=(1, 400), rate=8_000, seed=0)
    save_encoder(encoder, tmp_path / "sounds")
    with pytest.raises(ValueError, match="trained on sounds, which are not resized"):
        widefield.export(tmp_path / "sounds", tmp_path / "m.onnx", preprocess=True)
    with pytest.raises(ValueError, match=r"preprocess is for a \.onnx file, and .*model is none"):
        widefield.export(tmp_path / "sounds", tmp_path / "model", preprocess=True)


def test_every_export_has_the_record(tmp_path: Path) -> None:
    encoder = saved(tmp_path / "encoder", 32, written(tmp_path / "data", FILES["12 bits in 16"]))
    config = load_encoder(encoder).config
    widefield.export(encoder, tmp_path / "file.safetensors")
    widefield.export(encoder, tmp_path / "model")
    assert load_encoder(tmp_path / "file.safetensors").config == config
    assert load_model_folder(tmp_path / "model")[0].config.record() == config.record()
    processor = json.loads((tmp_path / "model" / "preprocessor_config.json").read_text())
    assert processor["size"] == {"shortest_edge": 32}
    assert (processor["image_mean"], processor["image_std"]) == (
        list(config.mean),
        list(config.std),
    )
    card = (tmp_path / "model" / "README.md").read_text()
    black, white = config.black_white
    assert f"- more than 8 bits: {black:g} becomes 0, {white:g} becomes 255" in card
    assert "- normalization: mean 0.3, 0.4, 0.5, standard deviation 0.2, 0.25, 0.3 of" in card
    assert "guessed" not in card


def test_transformers_gets_no_record_that_it_would_misread(tmp_path: Path) -> None:
    widefield.export(saved(tmp_path / "square", 32), tmp_path / "model")
    file = tmp_path / "model" / "preprocessor_config.json"
    assert file.exists()
    widefield.export(saved(tmp_path / "wide", (24, 40)), tmp_path / "model", overwrite=True)
    assert not file.exists()


def test_the_card_of_other_channels_takes_arrays(tmp_path: Path) -> None:
    encoder = build_encoder(
        "resnet-tiny", channels=2, stem="native", mean=(0.1, 0.2), std=(0.3, 0.4), seed=0
    ).eval()
    save_encoder(encoder, tmp_path / "encoder")
    widefield.export(tmp_path / "encoder", tmp_path / "model")
    scope: dict[str, Any] = {"images": torch.rand(4, 2, 32, 32)}
    exec(lines_of_card(tmp_path / "model"), scope)
    torch.testing.assert_close(scope["features"], encoder(scope["images"]))


def test_deep_images_without_a_record_are_not_clipped(tmp_path: Path) -> None:
    """Pillow's own conversion, the control, makes them white."""
    data = written(tmp_path / "data", FILES["thermal"])
    widefield.export(saved(tmp_path / "encoder", 32), tmp_path / "model")
    lines = lines_of_card(tmp_path / "model").replace("image.png", str(data / "0.png"))
    with pytest.raises(ValueError, match="more than 8 bits, and no black and white"):
        exec(lines, {})
    assert np.asarray(Image.open(data / "0.png").convert("RGB")).min() == 255


@pytest.mark.parametrize(
    ("field", "value"),
    [("interpolation", "bilinear"), ("fit", "stretch"), ("guessed", 1), ("std", [0, 1, 1])],
)
def test_a_record_of_another_preprocessing_is_refused(
    field: str, value: object, tmp_path: Path
) -> None:
    widefield.export(saved(tmp_path / "encoder", 32), tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    config["widefield"][field] = value
    file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=rf"no record of .* this version \({field} is .*export"):
        load_model_folder(tmp_path / "model")


@pytest.mark.parametrize("name", ["interpolation", "fit", "guessed"])
def test_files_without_a_part_of_the_record_are_refused(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "encoder", 32)
    encoder = load_encoder(tmp_path / "encoder")
    fields = json.loads((tmp_path / "encoder" / "encoder.json").read_text())
    del fields[name]
    weights = {key: value.contiguous() for key, value in encoder.backbone.state_dict().items()}
    save_file(weights, tmp_path / "old.safetensors", metadata={"widefield": json.dumps(fields)})
    with pytest.raises(ValueError, match=r"old\.safetensors holds no encoder .*export it again"):
        load_encoder(tmp_path / "old.safetensors")
