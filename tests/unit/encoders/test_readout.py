"""The wide readout: its equations by brute force, its guarantee, its file and its messages."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from widefield.encoders import (
    READOUT_FILE,
    Encoder,
    FeatureMap,
    Wide,
    build_encoder,
    fit_readout,
    load_readout,
    save_encoder,
    save_readout,
)
from widefield.encoders.readout import Source, source_features
from widefield.encoders.readout_fit import (
    _RIDGE,
    _gram_factor,
    _residual,
    default_sources,
    explained,
)
from widefield.probes import fit_linear


class Pooled(nn.Module):
    """Two stages of fixed random weights, then the mean over positions.

    Borders wrap around, so a shift of the image by whole strides leaves the mean as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.one = nn.Conv2d(3, 6, 3, stride=2, padding=1, padding_mode="circular")
        self.two = nn.Conv2d(6, 5, 3, stride=2, padding=1, padding_mode="circular")
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x).relu()).relu().mean((2, 3))


def images(count: int, seed: int = 0) -> Tensor:
    """Smooth random images [n, 3, 16, 16]."""
    small = torch.rand(count, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(small, size=16, mode="bilinear")


@pytest.fixture(scope="module")
def wide() -> Wide:
    encoder = Pooled()
    return Wide(encoder, fit_readout(encoder, images(400).split(64), dim=21)).eval()


def features_of(wide: Wide, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return the pooled features of images and those of all sources."""
    h, features = source_features(wide.encoder, x, wide.readout.config.sources)
    return h, list(wide.readout.with_dictionary(features))


def test_directions_are_the_leading_eigenvectors_of_what_the_output_leaves_out(wide: Wide) -> None:
    x = images(400)
    with torch.no_grad():
        h, features = features_of(wide, x)
        output = wide(x).double()
    width = h.shape[1]
    for source, name, s in zip(
        wide.readout.config.sources, wide.readout.config.names, features, strict=True
    ):
        o = output[:, :width] - output[:, :width].mean(0)
        z = ((s - s.mean(0)) / s.std(0)).double()
        residual = z - o @ torch.linalg.lstsq(o, z).solution
        wanted = torch.linalg.eigh(residual.T @ residual)[1].flip(1)[:, : source.width]
        found = torch.linalg.qr(wide.readout.directions(name).double() * s.std(0)[:, None])[0]
        # Equal subspaces: all cosines of their principal angles are 1.
        assert torch.linalg.svdvals(wanted.T @ found).min() > 0.999
        width += source.width
    assert output.shape[1] == width


def test_a_linear_map_of_the_output_gives_h_and_every_direction(wide: Wide) -> None:
    x = images(200, seed=1)  # others than those it was fitted on
    with torch.no_grad():
        h, features = features_of(wide, x)
        output = wide(x).double()
    output = torch.cat([output, torch.ones(len(output), 1)], dim=1)
    kept = [
        s.double() @ wide.readout.directions(name).double()
        for name, s in zip(wide.readout.config.names, features, strict=True)
    ]
    for target in (h.double(), *kept):
        left = target - output @ torch.linalg.lstsq(output, target).solution
        assert left.norm() <= 1e-5 * target.norm()


def test_the_share_of_variance_is_that_of_least_squares(wide: Wide) -> None:
    x = images(400)
    with torch.no_grad():
        _, features = features_of(wide, x)
        o = wide(x).double()
    o -= o.mean(0)
    for s, share in zip(features, wide.readout.config.variance, strict=True):
        z = ((s - s.mean(0)) / s.std(0)).double()
        left = z - o @ torch.linalg.lstsq(o, z).solution
        assert share == pytest.approx(1 - float(left.square().sum() / z.square().sum()), abs=2e-3)
        assert share < 1


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 60), st.integers(1, 40), st.integers(0, 1000))
def test_what_is_left_is_that_of_ridge_regression(rows: int, width: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    o, s = (torch.randn(rows, k, generator=generator) for k in (width, 5))
    penalty = (rows * _RIDGE) ** 0.5 * torch.eye(width)
    stacked, target = torch.cat([o, penalty]), torch.cat([s, torch.zeros(width, 5)])
    expected = target - stacked @ torch.linalg.lstsq(stacked.double(), target.double())[0].float()
    found = _residual(o, s, _gram_factor(o))
    torch.testing.assert_close(found, expected[:rows], atol=1e-4, rtol=1e-4)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 1000))
def test_explained_lies_between_none_and_all(width: int, target: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    o = torch.randn(50, width, generator=generator)
    s = torch.randn(50, target, generator=generator)
    mapped = o @ torch.randn(width, target, generator=generator)
    of_noise, of_mapped = explained(o, [s, mapped])
    assert 0 <= of_noise <= 1
    assert of_mapped > 0.99


def place_accuracy(features: Tensor, y: Tensor) -> float:
    """Accuracy of a probe of the place, fitted on the first two thirds."""
    fit = 2 * len(y) // 3
    labels = ({"place": y[:fit]}, {"place": y[fit:]})
    probe = fit_linear(features[:fit], labels[0], features[fit:], labels[1], classes={"place": 4})
    return probe["place"].outcome.value


def test_a_place_that_pooling_hides_is_predicted_from_the_wide_readout_alone() -> None:
    """The class is the quadrant of a bright square; pooled features have no positions."""
    generator = torch.Generator().manual_seed(0)
    x = 0.1 * torch.rand(600, 3, 16, 16, generator=generator)
    y = torch.randint(4, (600,), generator=generator)
    for i, k in enumerate(y.tolist()):
        row, column = 2 + 8 * (k // 2), 2 + 8 * (k % 2)
        x[i, :, row : row + 4, column : column + 4] += 0.8
    encoder = Pooled()
    wide = Wide(encoder, fit_readout(encoder, x[:400].split(100), dim=21)).eval()
    with torch.no_grad():
        h, o = encoder(x), wide(x)
    assert place_accuracy(o, y) > 0.95
    # The control arm: as many random features of h add nothing.
    z = (h - h.mean(0)) / h.std(0)
    random = (z @ torch.randn(h.shape[1], 16, generator=generator)).relu()
    assert place_accuracy(torch.cat([h, random], dim=1), y) < 0.6


def test_a_place_of_either_sign_is_predicted_from_the_dictionary() -> None:
    """A square is lighter or darker than the image, so that no linear map of pixels has its place.

    The stage of the encoder is linear too.
    """
    generator = torch.Generator().manual_seed(0)
    x = 0.5 + 0.1 * torch.rand(900, 3, 16, 16, generator=generator)
    y = torch.randint(4, (900,), generator=generator)
    sign = torch.randint(2, (900,), generator=generator) * 2 - 1
    for i, k in enumerate(y.tolist()):
        row, column = 2 + 8 * (k // 2), 2 + 8 * (k % 2)
        x[i, :, row : row + 4, column : column + 4] += 0.4 * sign[i]
    encoder = Pooled()
    wide = Wide(encoder, fit_readout(encoder, x[:600].split(100), dim=65)).eval()
    with torch.no_grad():
        o = wide(x)
    width = wide.readout.config.sources[-1].width
    assert place_accuracy(o, y) > 0.95
    assert place_accuracy(o[:, :-width], y) < 0.6  # the control: the same without the dictionary


def test_sources_of_a_transformer_are_patch_tokens_of_its_blocks() -> None:
    stages = ["input", "b3", "b3.class", "b6", "b6.class", "b9", "b9.class", "b12", "b12.class"]
    sources = [source.stage for source in default_sources(stages)]
    assert sources == ["b9", "b6", "input", "dictionary"]


def test_wide_stages_have_a_coarser_grid() -> None:
    encoder = build_encoder("resnet18", seed=0)  # 256 channels in its third stage
    readout = fit_readout(encoder, [torch.rand(40, 3, 32, 32)], dim=520)
    assert readout.config.names == ("s3@4", "s2@4", "input@32", "dictionary@3")
    assert Source(stage="s", side=4, width=1).features(torch.rand(2, 5, 3, 9)).shape == (2, 5 * 12)
    assert Source(stage="s", side=4, width=1).features(torch.rand(2, 5, 1, 9)).shape == (2, 45)


def test_a_readout_is_saved_and_loaded(wide: Wide, tmp_path: Path) -> None:
    save_readout(wide.readout, tmp_path)
    loaded = load_readout(tmp_path)
    assert loaded is not None
    assert loaded.config == wide.readout.config
    with torch.no_grad():
        assert torch.equal(Wide(wide.encoder, loaded)(images(5)), wide(images(5)))
    assert load_readout(tmp_path / "nowhere") is None


@pytest.mark.parametrize("damage", ["cut", "nan", "missing", "no config"])
def test_a_damaged_file_is_refused_in_one_line(wide: Wide, tmp_path: Path, damage: str) -> None:
    save_readout(wide.readout, tmp_path)
    file = tmp_path / READOUT_FILE
    weights = load_file(file)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    elif damage == "nan":
        weights["mean"][0] = float("nan")
    elif damage == "missing":
        del weights["mean"]
    if damage == "no config":
        save_file(weights, file)
    elif damage != "cut":
        from safetensors import safe_open

        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata()
        save_file(weights, file, metadata=metadata)
    with pytest.raises(ValueError, match=r"cannot be read \(.*\): take pooled features") as error:
        load_readout(tmp_path)
    assert "\n" not in str(error.value)


def test_images_of_another_form_are_refused(wide: Wide) -> None:
    with pytest.raises(
        ValueError, match="fitted on examples of 3 channels and 16x16 pixels, not 1"
    ):
        wide(torch.rand(2, 1, 16, 16))


def test_a_readout_of_another_encoder_is_refused(wide: Wide) -> None:
    other = Wide(nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten()), wide.readout)
    with pytest.raises(ValueError, match=r"the readout takes stage .*, and the encoder has input"):
        other(images(2))


def test_what_cannot_be_fitted_is_refused() -> None:
    encoder = Pooled()
    with pytest.raises(ValueError, match="two examples or more, and there are 1"):
        fit_readout(encoder, [images(1)])
    with pytest.raises(
        ValueError, match="dim is 8, and there are 5 pooled features: give at least 9"
    ):
        fit_readout(encoder, [images(9)], dim=8)
    with pytest.raises(ValueError, match=r"dim is 900, and 9 examples .* have 2\d such"):
        fit_readout(encoder, [images(9)], dim=900)
    with pytest.raises(ValueError, match="no stages are found"):
        fit_readout(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), [images(9)])
    nn.init.constant_(encoder.two.bias, float("nan"))
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit_readout(encoder, [images(9)])


def test_constant_features_add_no_noise() -> None:
    encoder = Pooled()
    x = images(50)
    x[:, 2] = 0.5
    with torch.no_grad():
        nn.init.zeros_(encoder.two.weight)
        output = Wide(encoder, fit_readout(encoder, [x], dim=13)).eval()(x)
    assert output.isfinite().all()
    assert output.abs().max() < 20


def test_the_smallest_dim_has_a_direction_of_each_source() -> None:
    encoder = build_encoder("resnet-tiny", seed=0)
    x = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    readout = fit_readout(encoder, [x], dim=132)
    assert readout.dim == 132
    assert [source.width for source in readout.config.sources] == [1] * 4


def test_features_of_few_images_are_not_huge_on_others() -> None:
    """Eight images have directions of no variance, and features that are nearly constant.

    Divided by their deviation, these have values above 10,000 on other images.
    """
    few, others = images(8).repeat(10, 1, 1, 1), images(300, seed=1)
    encoder = Pooled()
    wide = Wide(encoder, fit_readout(encoder, [few])).eval()
    assert wide.dim <= 5 + 3 * 8
    with torch.no_grad():
        assert wide(few).abs().max() < 10
        assert wide(others).abs().max() < 1000


def test_the_readout_is_in_float32_under_autocast(wide: Wide) -> None:
    x = images(100)
    with torch.no_grad():
        h, features = features_of(wide, x)
        expected = wide.readout(h, features[:-1])
        with torch.autocast("cpu", torch.bfloat16):
            found = wide.readout(h, features[:-1])
            control = features[0] @ features[0].T
    assert torch.equal(found, expected)
    assert control.dtype == torch.bfloat16  # so autocast was on


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_module_of_another_type_has_the_same_features(dtype: torch.dtype) -> None:
    encoder = build_encoder("resnet-tiny", seed=0)
    x = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    wide = Wide(encoder, fit_readout(encoder, [x], dim=160)).eval()
    with torch.no_grad():
        expected, found = wide(x), wide.to(dtype)(x.to(dtype))
    assert found.dtype == torch.float32
    cosine = nn.functional.cosine_similarity(expected, found)
    assert cosine.min() > 0.99


def test_running_statistics_stay_as_they_are() -> None:
    """The first pass looks for stages; it must not count as training."""
    encoder = build_encoder("resnet-tiny", seed=0)
    x = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    wide = Wide(encoder, fit_readout(encoder, [x], dim=160)).train()
    wide(x)
    counts = [
        module.num_batches_tracked
        for module in wide.modules()
        if isinstance(module, nn.BatchNorm2d)
    ]
    assert set(map(int, filter(None, counts))) == {1}


@pytest.mark.parametrize("kind", [lambda encoder: encoder, FeatureMap])
def test_spectrograms_have_the_features_of_their_sounds(
    kind: Callable[[Encoder], nn.Module],
) -> None:
    encoder = build_encoder("resnet-tiny", channels=1, image_size=(1, 8000), rate=8000, seed=0)
    sounds = torch.rand(40, 1, 1, 8000, generator=torch.Generator().manual_seed(0)) - 0.5
    module = kind(encoder)
    wide = Wide(module, fit_readout(module, [sounds])).eval()
    assert encoder.spectrogram is not None
    torch.testing.assert_close(wide(encoder.spectrogram(sounds)), wide(sounds))
    with pytest.raises(ValueError, match="fitted on examples of 1 channels and 1x8000"):
        wide(torch.rand(2, 1, 32, 32))


def test_another_encoder_removes_the_readout(wide: Wide, tmp_path: Path) -> None:
    save_readout(wide.readout, tmp_path)
    save_encoder(build_encoder("resnet-tiny", seed=0), tmp_path)
    assert load_readout(tmp_path) is None
