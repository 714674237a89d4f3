"""Our batched views beside torchvision's, one image at a time."""

import itertools
import math

import numpy as np
import pytest
import torch
import torchvision.transforms.v2 as v2
import torchvision.transforms.v2.functional as tv
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from scipy.stats import binomtest, chisquare, ks_2samp, kstest
from torch import Tensor

from axes import each_value
from draws import generator
from widefield.views import ImageAugmentation, build_views, image
from widefield.views.image import Draw

ORDERS = torch.tensor(list(itertools.permutations(range(4))))


def images(*shape: int, seed: int = 0) -> Tensor:
    """Noise, and where there are three channels some grays, blacks and full colors."""
    x = torch.rand(shape, generator=generator(seed))
    if shape[0] >= 4 and shape[1] == 3:
        x[0] = 0.3
        x[1, :, :5] = 0
        x[2, :, 3] = 1
        x[3] = (x[3] * 4).round() / 4
    return x


def torchvision_jitter(x: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    """`color_jitter` of one image [3, H, W]."""
    brightness, contrast, saturation = factors.tolist()
    for operation in order.tolist():
        if operation == 0:
            x = tv.adjust_brightness(x, brightness)
        elif operation == 1:
            x = tv.adjust_contrast(x, contrast)
        elif operation == 2:
            x = tv.adjust_saturation(x, saturation)
        else:
            x = tv.adjust_hue(x, hue.item())
    return x


def torchvision_view(x: Tensor, draw: Draw, k: int) -> Tensor:
    """The view of image k that `draw` describes."""
    x = tv.resized_crop(x, *draw.boxes[k].int().tolist(), size=list(x.shape[-2:]), antialias=True)
    x = tv.horizontal_flip(x) if draw.flip[k] else x
    x = torchvision_jitter(x, draw.factors[k], draw.hue[k], draw.order[k])
    x = tv.rgb_to_grayscale(x, 3) if draw.grayscale[k] else x
    sides = [max(1, side // 20) * 2 + 1 for side in reversed(x.shape[-2:])]
    return tv.gaussian_blur(x, sides, [draw.sigma[k].item()] * 2) if draw.sigma[k] > 0 else x


# Pure functions at fixed parameters


@pytest.mark.parametrize(
    "shape", [(24, 3, 32, 32), (24, 1, 32, 32), (12, 4, 48, 20), (4, 3, 96, 96)]
)
def test_crop_is_torchvisions_antialiased_bilinear(shape: tuple[int, int, int, int]) -> None:
    x = images(*shape)
    draw = ImageAugmentation().draw(x, generator(1))
    ours = image.crop_flip(x, draw.boxes, draw.flip)
    for k in range(len(x)):
        box = draw.boxes[k].int().tolist()
        theirs = tv.resized_crop(x[k], *box, size=list(shape[-2:]), antialias=True)
        theirs = tv.horizontal_flip(theirs) if draw.flip[k] else theirs
        torch.testing.assert_close(ours[k], theirs, atol=1e-5, rtol=0)


def test_whole_image_crop_is_the_image() -> None:
    x = images(8, 3, 32, 32)
    boxes = torch.tensor([0.0, 0.0, 32.0, 32.0]).expand(8, 4)
    flip = torch.arange(8) % 2 == 1
    out = image.crop_flip(x, boxes, flip)
    assert torch.equal(out[::2], x[::2])
    assert torch.equal(out[1::2], x[1::2].flip(-1))


@pytest.mark.parametrize("whole_batch", [False, True], ids=["sorted", "whole batch"])
def test_jitter_is_torchvisions_in_every_order(whole_batch: bool) -> None:
    x = images(72, 3, 16, 16)
    factors = 2 * torch.rand(72, 3, generator=generator(1))
    hue = torch.rand(72, generator=generator(2)) - 0.5
    hue[:4] = torch.tensor([-0.5, 0.5, 0.0, 1 / 3])
    order = ORDERS.repeat(3, 1)
    if whole_batch:
        everything = [slice(None)] * 3
        ours = image.jitter_(x.clone(), factors, hue, order, everything, everything)
    else:
        ours = image.color_jitter(x, factors, hue, order)
    for k in range(len(x)):
        theirs = torchvision_jitter(x[k], factors[k], hue[k], order[k])
        torch.testing.assert_close(ours[k], theirs, atol=1e-5, rtol=0)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_jitter_of_other_channel_counts_is_brightness_and_contrast(channels: int) -> None:
    x = images(24, channels, 16, 16)
    factors = 2 * torch.rand(24, 3, generator=generator(1))
    ours = image.color_jitter(x, factors, torch.full((24,), 0.3), ORDERS)
    for k in range(24):
        out, (brightness, contrast, _) = x[k], factors[k].tolist()
        for operation in ORDERS[k].tolist():
            if operation == 0:
                out = (out * brightness).clamp(0, 1)
            elif operation == 1:
                out = (contrast * out + (1 - contrast) * out.mean()).clamp(0, 1)
        torch.testing.assert_close(ours[k], out, atol=1e-5, rtol=0)


levels = st.sampled_from([0.0, 1 / 255, 0.25, 0.5, 254 / 255, 1.0]) | st.floats(0, 1, width=32)


@given(pixel=st.tuples(levels, levels, levels), shift=st.floats(-0.5, 0.5, width=32))
@settings(max_examples=300, deadline=None)
def test_hue_of_any_pixel_is_torchvisions(pixel: tuple[float, ...], shift: float) -> None:
    x = torch.tensor(pixel).view(1, 3, 1, 1)
    ours = image.adjust_hue(x, torch.tensor([shift]))
    # float64, as theirs divides by the spread of the channels, which can be tiny.
    theirs = tv.adjust_hue(x.double(), shift).float()
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_hue_turns_pure_colors() -> None:
    red, green, blue = torch.eye(3).view(3, 3, 1, 1)
    x = torch.stack([red, green, blue])
    third = image.adjust_hue(x, torch.full((3,), 1 / 3))
    torch.testing.assert_close(third, torch.stack([green, blue, red]))
    torch.testing.assert_close(
        image.adjust_hue(x, torch.full((3,), 0.5)), 1 - x, msg="half a turn is the complement"
    )


def test_grayscale_is_torchvisions_and_only_where_chosen() -> None:
    x = images(8, 3, 16, 16)
    chosen = torch.arange(8) % 3 == 0
    out = image.to_grayscale(x, chosen)
    torch.testing.assert_close(out[chosen], tv.rgb_to_grayscale(x, 3)[chosen])
    assert torch.equal(out[~chosen], x[~chosen])
    four = images(8, 4, 16, 16)
    assert torch.equal(image.to_grayscale(four, chosen), four)


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [((6, 3, 32, 32), [3, 3]), ((3, 1, 64, 96), [9, 7]), ((2, 3, 120, 8), [3, 13])],
)
def test_blur_is_torchvisions(shape: tuple[int, ...], kernel: list[int]) -> None:
    x = images(*shape)
    sigma = torch.linspace(0.1, 2.0, shape[0])
    sigma[0] = 0
    ours = image.gaussian_blur(x, sigma)
    assert torch.equal(ours[0], x[0])
    for k in range(1, shape[0]):
        theirs = tv.gaussian_blur(x[k], kernel, [sigma[k].item()] * 2)
        torch.testing.assert_close(ours[k], theirs, atol=1e-5, rtol=0)


def test_blur_of_a_line_of_pixels_is_along_it() -> None:
    line = images(2, 1, 1, 40)
    ours = image.gaussian_blur(line, torch.tensor([1.5, 0.8]))
    high = image.gaussian_blur(line.expand(2, 1, 40, 40), torch.tensor([1.5, 0.8]))
    torch.testing.assert_close(ours, high[:, :, :1], atol=1e-6, rtol=0)


def pillow_blurred(x: Tensor, sigma: float) -> Tensor:
    """Pillow's blur of an image [3, H, W]; it takes 8 bits a number and rounds to them."""
    pixels = Image.fromarray((x * 255).round().byte().permute(1, 2, 0).numpy())
    blurred = np.asarray(pixels.filter(ImageFilter.GaussianBlur(sigma)))
    return torch.from_numpy(blurred.copy()).permute(2, 0, 1) / 255


@pytest.mark.parametrize("side", [16, 32, 96])
def test_blur_of_feature_dropouts_views_is_pillows(side: int) -> None:
    sigma = torch.tensor([0.1, 0.3, 0.5, 0.8, 1.0, 1.3, 1.7, 2.0, 3.5, 0.0])
    x = (images(len(sigma), 3, side, side) * 255).round() / 255
    ours = image.pillow_blur(x, sigma)
    assert torch.equal(ours[-1], x[-1])
    for k, deviation in enumerate(sigma.tolist()):
        # Six passes, each rounded by up to half a level.
        theirs = pillow_blurred(x[k], deviation)
        torch.testing.assert_close(ours[k], theirs, atol=3 / 255, rtol=0)
        assert (ours[k] - theirs).square().mean().sqrt() < 1 / 255


@pytest.mark.parametrize("sigma", [0.5, 1.0, 1.5, 2.0])
def test_pillows_blur_has_the_deviation_that_is_asked_for(sigma: float) -> None:
    """A line of light spreads by sigma; in three taps it would spread by 0.8 at sigma 2."""
    x = torch.zeros(1, 1, 33, 33, dtype=torch.float64)
    x[..., 16] = 1
    spread = image.pillow_blur(x, torch.tensor([sigma]).double())[0, 0, 16]
    assert spread.sum().item() == pytest.approx(1)
    variance = (spread * (torch.arange(33) - 16).square()).sum()
    assert variance.sqrt().item() == pytest.approx(sigma, abs=1e-6)


def test_a_whole_view_is_torchvisions_with_the_same_numbers() -> None:
    views = ImageAugmentation(crop_scale=(0.2, 1.0), blur_prob=0.5)
    x = images(64, 3, 32, 32)
    ours = views(x, 1, generator(5))[0]
    draw = views.draw(x, generator(5))
    for k in range(len(x)):
        torch.testing.assert_close(ours[k], torchvision_view(x[k], draw, k), atol=1e-5, rtol=0)


# Distributions


@pytest.mark.parametrize(
    ("height", "width", "scale"),
    [(32, 32, (0.08, 1.0)), (64, 40, (0.2, 1.0)), (12, 48, (0.5, 1.0))],
)
def test_crops_are_distributed_as_torchvisions(
    height: int, width: int, scale: tuple[float, float]
) -> None:
    n = 3000
    crop = v2.RandomResizedCrop((height, width), scale=scale)
    blank = torch.zeros(1, height, width)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = [crop.make_params([blank]) for _ in range(n)]
    theirs = torch.tensor([[d["top"], d["left"], d["height"], d["width"]] for d in drawn])
    x = blank.expand(n, 1, height, width)
    ours = ImageAugmentation(crop_scale=scale).draw_boxes(x, generator(1))
    top, left, h, w = ours.unbind(1)
    assert (ours == ours.round()).all()
    assert min(top.min(), left.min()) >= 0
    assert min(h.min(), w.min()) >= 1
    assert (top + h).max() <= height
    assert (left + w).max() <= width
    for measure in (
        lambda box: box[:, 0],
        lambda box: box[:, 1],
        lambda box: box[:, 2],
        lambda box: box[:, 3],
        lambda box: box[:, 2] * box[:, 3],
        lambda box: box[:, 3] / box[:, 2],
    ):
        assert ks_2samp(measure(ours).numpy(), measure(theirs).numpy()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("height", "width", "ratio"),
    [
        (100, 10, (0.2, 0.3)),
        (10, 100, (2.0, 3.0)),
        (20, 20, (0.5, 0.6)),
        (31, 23, (0.5, 0.6)),
        (23, 32, (1.7, 1.9)),
    ],
)
def test_crop_that_never_fits_is_torchvisions_middle(
    height: int, width: int, ratio: tuple[float, float]
) -> None:
    # The whole area at any of these ratios is wider or higher than the image.
    crop = v2.RandomResizedCrop((height, width), scale=(1.0, 1.0), ratio=ratio)
    theirs = crop.make_params([torch.zeros(1, height, width)])
    x = torch.zeros(5, 1, height, width)
    ours = ImageAugmentation(crop_scale=(1.0, 1.0), crop_ratio=ratio).draw_boxes(x, generator())
    expected = [theirs[key] for key in ("top", "left", "height", "width")]
    assert ours.tolist() == [expected] * 5


def test_jitter_numbers_are_uniform_where_drawn() -> None:
    n = 20_000
    views = ImageAugmentation(jitter=(0.4, 1.5, 0.2, 0.1), jitter_prob=0.8)
    draw = views.draw(torch.zeros(n, 3, 4, 4), generator(3))
    drawn = draw.hue != 0
    assert binomtest(int(drawn.sum()), n, 0.8).pvalue > 1e-3
    assert (draw.factors[~drawn] == 1).all(), "factors and hue are drawn or neutral together"
    for column, low, high in ((0, 0.6, 1.4), (1, 0.0, 2.5), (2, 0.8, 1.2)):
        factors = draw.factors[drawn, column].numpy()
        assert kstest(factors, "uniform", (low, high - low)).pvalue > 1e-3
    assert kstest(draw.hue[drawn].numpy(), "uniform", (-0.1, 0.2)).pvalue > 1e-3
    # Every order equally often, independently of the rest.
    code = (draw.order * torch.tensor([64, 16, 4, 1])).sum(1)
    assert chisquare(code.unique(return_counts=True)[1].numpy()).pvalue > 1e-3
    assert len(code.unique()) == 24


def test_flip_grayscale_and_blur_have_their_probabilities() -> None:
    n = 20_000
    views = ImageAugmentation(
        flip_prob=0.3, grayscale_prob=0.15, blur_prob=0.6, blur_sigma=(0.1, 2.0)
    )
    draw = views.draw(torch.zeros(n, 3, 4, 4), generator(4))
    blurred = draw.sigma > 0
    for chosen, probability in ((draw.flip, 0.3), (draw.grayscale, 0.15), (blurred, 0.6)):
        assert binomtest(int(chosen.sum()), n, probability).pvalue > 1e-3
    assert kstest(draw.sigma[blurred].numpy(), "uniform", (0.1, 1.9)).pvalue > 1e-3
    both = (draw.flip & draw.grayscale).sum()
    assert binomtest(int(both), n, 0.3 * 0.15).pvalue > 1e-3, "choices are independent"


# The module


@each_value(
    ("channels", [1, 3, 4]),
    ("memory_format", [torch.contiguous_format, torch.channels_last]),
    ("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16]),
)
def test_views_keep_shape_dtype_format_and_range(
    channels: int, memory_format: torch.memory_format, dtype: torch.dtype
) -> None:
    x = images(8, channels, 24, 32).to(dtype).contiguous(memory_format=memory_format)
    before = x.clone()
    for view in build_views("expert:feature-dropout")(x, 3, generator()):
        assert view.shape == x.shape
        assert view.dtype == dtype
        assert view.is_contiguous(memory_format=memory_format)
        assert view.min() >= 0
        assert view.max() <= 1
        assert not view.requires_grad
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_images_are_viewed_in_single(dtype: torch.dtype) -> None:
    views, x = build_views("expert:feature-dropout"), images(32, 3, 32, 32).to(dtype)
    half = views(x, 1, generator())[0]
    assert torch.equal(half, views(x.float(), 1, generator())[0].to(dtype))


def test_white_stays_within_range() -> None:
    views = ImageAugmentation(jitter_prob=0, grayscale_prob=0, blur_prob=1)
    assert views(torch.ones(256, 3, 32, 32), 1, generator())[0].max() <= 1


def test_every_example_and_view_is_drawn_anew() -> None:
    x = images(1, 3, 32, 32).expand(16, -1, -1, -1)
    out = torch.cat(build_views("expert")(x, 2, generator()))
    different = [not torch.equal(a, b) for a, b in itertools.combinations(out, 2)]
    assert all(different)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_pieces_of_a_batch_change_nothing(
    monkeypatch: pytest.MonkeyPatch, memory_format: torch.memory_format
) -> None:
    views = build_views("expert:feature-dropout")
    x = images(37, 3, 32, 32).contiguous(memory_format=memory_format)
    whole = views(x, 2, generator())
    monkeypatch.setattr(image, "CHUNK", 10 * x[0].numel())
    for a, b in zip(whole, views(x, 2, generator()), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_autocast_does_not_reach_the_views() -> None:
    views, x = build_views("expert:feature-dropout"), images(8, 3, 32, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = views(x, 1, generator())[0]
    assert torch.equal(inside, views(x, 1, generator())[0])


def test_neutral_views_are_the_images() -> None:
    views = ImageAugmentation(
        crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), flip_prob=0, jitter_prob=0, grayscale_prob=0
    )
    x = images(8, 3, 32, 32)
    assert torch.equal(views(x, 1, generator())[0], x)


@pytest.mark.parametrize("batch", [1, 2])
def test_small_batches(batch: int) -> None:
    x = torch.rand(batch, 3, 32, 32)
    assert [view.shape for view in build_views("expert")(x, 2, generator())] == [x.shape, x.shape]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("crop_scale", (0.0, 1.0)),
        ("crop_scale", (0.5, 0.2)),
        ("crop_scale", (0.5, 1.5)),
        ("crop_ratio", (-1.0, 1.0)),
        ("blur_sigma", (2.0, 0.1)),
        ("flip_prob", 1.5),
        ("blur_prob", -0.1),
        ("jitter_prob", math.nan),
        ("jitter", (0.4, 0.4, 0.4, 0.6)),
        ("jitter", (-0.4, 0.4, 0.4, 0.1)),
    ],
)
def test_settings_without_sense_are_refused(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match=setting) as refused:
        ImageAugmentation(**{setting: value})
    assert "\n" not in str(refused.value)
