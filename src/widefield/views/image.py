"""Augmentation of images: random crop and flip, color jitter, grayscale, blur.

Each example has its own random parameters. They are sampled for the whole batch at once (`draw`)
and applied by pure functions of tensors. An operation is disabled for an example by a neutral
parameter, so that the batch is never split and the accelerator never synchronizes.

Distributions and arithmetic are those of torchvision's RandomResizedCrop (bilinear),
RandomHorizontalFlip, ColorJitter, RandomGrayscale and GaussianBlur applied to each image alone; the
blur may be Pillow's instead.
"""

import functools
import math
from typing import Annotated, Literal, NamedTuple, get_args

import torch
from annotated_types import Ge, Le
from torch import Generator, Tensor

from widefield.core.batch import checked
from widefield.core.names import check_name
from widefield.core.types import Crop
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.blur import gaussian_blur, pillow_blur, separable

Probability = Annotated[float, Ge(0), Le(1)]

Blur = Literal["torchvision", "pillow"]
"""Implementation of the Gaussian blur: a truncated kernel, or three box blurs."""

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)

# As torchvision's `rgb_to_grayscale`.
LUMA = (0.2989, 0.587, 0.114)
"""Perceived brightness of red, green and blue."""

# Chosen by hand.
MOST_JOINT = 4
"""Most channels that share their jitter; the jitter of more is drawn for each channel."""

CHUNK = 2**19
"""Elements per chunk of a batch on a CPU: larger chunks exceed its cache, and the allocator
returns their temporaries to the operating system after every operation."""


class Draw(NamedTuple):
    """Random parameters of one view of each of N images."""

    boxes: Tensor
    """Crops [N, 4] as top, left, height, width in whole pixels."""
    flip: Tensor
    """Whether an image is mirrored left to right, bool [N]."""
    factors: Tensor
    """Brightness, contrast and saturation factors [N, 3]; 1 changes nothing. Of more than 4
    channels [N, C, 3]."""
    hue: Tensor
    """Hue shift [N] in turns of the color circle; 0 changes nothing."""
    order: Tensor
    """Indices of the four color operations in the order of application, int64 [N, 4]; of more than
    4 channels [N, C, 4]."""
    grayscale: Tensor
    """Whether an image loses its color, bool [N]."""
    sigma: Tensor
    """Standard deviation of the blur [N], pixels; 0 changes nothing."""


class ImageAugmentation(Augmentation):
    """Random crop, flip, color jitter, grayscale and blur of images [B, C, H, W] in [0, 1].

    Views keep the images' size, dtype, memory format and device; half precision is computed in
    single. Saturation, hue and grayscale need 3 channels: images with another number of channels
    get crop, flip, brightness, contrast (about the mean over channels) and blur. Of more than 4
    channels each gets its own brightness and contrast, about its own mean. It is
    differentiable unless there is jitter, which works in place.

    Args:
        crop_scale: minimum and maximum share of the image's area in a crop; None for no crop.
        crop_ratio: minimum and maximum width / height of a crop, which is log-uniform.
        flip_prob: probability of mirroring left to right.
        jitter: (b, c, s, h): brightness, contrast and saturation factors are uniform in
            [max(0, 1 - b), 1 + b] and so on, hue shifts in [-h, h] turns.
        jitter_prob: probability of the jitter; its four operations are applied in random order.
        grayscale_prob: probability of removing color.
        blur_sigma: minimum and maximum standard deviation of the Gaussian blur, pixels.
        blur_prob: probability of the blur.
        blur: torchvision for a kernel of a tenth of the side, as is usual for large images; at 32
            pixels it has 3 taps, and a smaller deviation than requested. pillow for Pillow's three
            box blurs, which have the requested one.

    Raises:
        ValueError: a range is empty or out of bounds, or a probability is not in [0, 1].

    Example:
        >>> augmentation = ImageAugmentation(crop_scale=(0.2, 1.0), blur_prob=0.5)
        >>> first, second = augmentation(torch.rand(8, 3, 32, 32), 2)
        >>> first.shape
        torch.Size([8, 3, 32, 32])
    """

    @checked
    def __init__(
        self,
        *,
        crop_scale: tuple[float, float] | None = (0.08, 1.0),
        crop_ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip_prob: Probability = 0.5,
        jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.4, 0.1),
        jitter_prob: Probability = 0.8,
        grayscale_prob: Probability = 0.2,
        blur_sigma: tuple[float, float] = (0.1, 2.0),
        blur_prob: Probability = 0.0,
        blur: Blur = "torchvision",
    ) -> None:
        super().__init__()
        for name, (low, high), max_value in (
            ("crop_scale", crop_scale or (1.0, 1.0), 1.0),
            ("crop_ratio", crop_ratio, math.inf),
            ("blur_sigma", blur_sigma, math.inf),
        ):
            if not 0 < low <= high <= max_value:
                raise ValueError(f"{name}={low, high}: give 0 < low <= high <= {max_value}")
        check_name("blur", blur, get_args(Blur))
        if not all(0 <= amount < math.inf for amount in jitter) or jitter[HUE] > 0.5:
            raise ValueError(f"jitter={jitter}: give four numbers from 0 up, the last at most 0.5")
        self.crop_scale = crop_scale
        self.crop_ratio = crop_ratio
        self.flip_prob = flip_prob
        self.jitter = jitter
        self.jitter_prob = jitter_prob
        self.grayscale_prob = grayscale_prob
        self.blur_sigma = blur_sigma
        self.blur_prob = blur_prob
        self.blur = gaussian_blur if blur == "torchvision" else pillow_blur
        self.pixel_aligned = crop_scale is None and flip_prob == 0
        self.passes_gradient = jitter_prob == 0

    @property
    def crop(self) -> Crop | None:
        """The random crop, if there is one."""
        return None if self.crop_scale is None else Crop(self.crop_scale, self.crop_ratio)

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Draw a view of each of `views` [B, C, H, W]."""
        # Autocast would run the crop's matrix products in half precision.
        with torch.autocast(views[0].device.type, enabled=False):
            cropped = bool(context.crops)
            return [self.view(x, self.draw(x, generator, cropped=cropped)) for x in views]

    def view(self, x: Tensor, draw: Draw) -> Tensor:
        """Return views of `x` [N, C, H, W] with parameters `draw`; a CPU works in chunks."""
        if x.requires_grad and self.passes_gradient:
            return self.transform(x, draw).to(x.dtype)
        pieces = 1 + x.numel() // CHUNK if x.device.type == "cpu" else 1
        out = torch.empty_like(x)
        with torch.no_grad():
            parts = map(Draw, *map(functools.partial(torch.chunk, chunks=pieces), draw))
            for piece, image, part in zip(out.chunk(pieces), x.chunk(pieces), parts, strict=True):
                piece.copy_(self.transform(image, part))
        return out

    def draw(self, x: Tensor, generator: Generator | None = None, *, cropped: bool = False) -> Draw:
        """Sample the random parameters of one view of each image of `x` [N, C, H, W].

        Images that are `cropped` already are not cropped again.
        """
        n, device = len(x), x.device

        def uniform(low: float, high: float, *shape: int) -> Tensor:
            return torch.empty(shape, device=device).uniform_(low, high, generator=generator)

        each = (n,) if x.shape[1] <= MOST_JOINT else (n, x.shape[1])
        use_jitter = uniform(0, 1, n) < self.jitter_prob
        brightness, contrast, saturation, max_hue = self.jitter
        factors = [
            uniform(max(0, 1 - brightness), 1 + brightness, *each),
            uniform(max(0, 1 - contrast), 1 + contrast, *each),
            uniform(max(0, 1 - saturation), 1 + saturation, *each),
        ]
        mask = use_jitter[:, None] if len(each) == 1 else use_jitter[:, None, None]
        return Draw(
            boxes=_whole(x) if cropped else self.draw_boxes(x, generator),
            flip=uniform(0, 1, n) < self.flip_prob,
            factors=torch.stack(factors, dim=-1).where(mask, 1.0),
            hue=uniform(-max_hue, max_hue, n).where(use_jitter, 0.0),
            order=uniform(0, 1, *each, 4).argsort(-1),
            grayscale=uniform(0, 1, n) < self.grayscale_prob,
            sigma=uniform(*self.blur_sigma, n).where(uniform(0, 1, n) < self.blur_prob, 0.0),
        )

    def draw_boxes(self, x: Tensor, generator: Generator | None) -> Tensor:
        """Sample crops [N, 4] of `x`: the first valid one of ten, else the center crop."""
        n, _, height, width = x.shape
        if self.crop_scale is None:
            return _whole(x)
        low, high = map(math.log, self.crop_ratio)
        # Ten attempts, as torchvision's RandomResizedCrop makes, but all at once: a loop until one
        # is valid would wait for the device.
        u = torch.rand(4, n, 10, device=x.device, generator=generator)
        scale = self.crop_scale[0] + (self.crop_scale[1] - self.crop_scale[0]) * u[0]
        area, ratio = height * width * scale, torch.exp(low + (high - low) * u[1])
        h, w = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
        is_valid = (h > 0) & (h <= height) & (w > 0) & (w <= width)
        # The product may round up to height - h + 1, one pixel too far.
        top = torch.minimum((u[2] * (height - h + 1)).floor(), height - h)
        left = torch.minimum((u[3] * (width - w + 1)).floor(), width - w)
        first = is_valid.int().argmax(1)[:, None, None]
        boxes = torch.stack([top, left, h, w], dim=2).take_along_dim(first, dim=1).squeeze(1)
        # The largest central crop whose width / height is in `crop_ratio`.
        h0 = min(height, round(width / self.crop_ratio[0]))
        w0 = min(width, round(height * self.crop_ratio[1]))
        middle = ((height - h0) // 2, (width - w0) // 2, h0, w0)
        return boxes.where(is_valid.any(1, keepdim=True), constant(middle, boxes.dtype, x.device))

    def transform(self, x: Tensor, draw: Draw) -> Tensor:
        """Return views of `x` [N, C, H, W] with parameters `draw`, in float32 or float64."""
        view = x.to(torch.promote_types(x.dtype, torch.float32))
        if not self.pixel_aligned:
            view = crop_flip(view, draw.boxes, draw.flip)
        if self.jitter_prob > 0:
            jitter = color_jitter if view.shape[1] <= MOST_JOINT else channel_jitter
            view = jitter(view, draw.factors, draw.hue, draw.order)
        if self.grayscale_prob > 0:
            view = to_grayscale(view, draw.grayscale)
        if self.blur_prob > 0:
            view = self.blur(view, draw.sigma)
        # Rounding can move values out of [0, 1].
        return view.clamp(0, 1)


def _whole(x: Tensor) -> Tensor:
    """Return boxes [N, 4] that hold the whole of each image [N, C, H, W]."""
    n, _, height, width = x.shape
    whole = (0.0, 0.0, float(height), float(width))
    return constant(whole, torch.float32, x.device).expand(n, 4)


@functools.cache
def constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return `values` on the device; cached, because the transfer synchronizes an accelerator."""
    return torch.tensor(values, dtype=dtype, device=device)


def crop_flip(x: Tensor, boxes: Tensor, flip: Tensor) -> Tensor:
    """Crop images [N, C, H, W] to `boxes` [N, 4], resize them to [H, W], mirror by `flip` [N].

    Resizing is bilinear. A crop is never larger than the output, so antialiasing has no effect.
    """
    top, left, h, w = boxes.to(x.dtype).unbind(1)
    rows = resize_weights(top, h, x.shape[-2], torch.zeros_like(flip))
    return separable(x, rows, resize_weights(left, w, x.shape[-1], flip))


def resize_weights(start: Tensor, length: Tensor, side: int, flip: Tensor) -> Tensor:
    """Return the weights [N, side, side] that resize segments of `side` pixels linearly to `side`.

    Output i is the input at u_i = start + (i + 1/2) length / side - 1/2, clamped to the segment;
    pixel j has the weight max(0, 1 - |u_i - j|). The outputs are in reverse order where `flip`.
    All arguments but `side` are [N].
    """
    pixel = torch.arange(side, device=start.device, dtype=start.dtype)
    output = torch.where(flip[:, None], side - 1 - pixel, pixel)
    start, length = start[:, None], length[:, None]
    u = start + (output + 0.5) * (length / side) - 0.5
    u = torch.minimum(torch.maximum(u, start), start + length - 1)
    return (u[:, :, None] - pixel).abs_().neg_().add_(1).clamp_min_(0)


def color_jitter(x: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue of x [N, C, H, W], as a `Draw` says.

    The operations are 0 to 3 in `order` [N, 4], which each image has of its own.
    """
    if x.device.type != "cpu":
        all_rows, x = [slice(None)] * 3, x.clone(memory_format=torch.contiguous_format)
        return jitter_(x, factors, hue, order, all_rows, all_rows)
    # Sorted by the position of hue, the examples with a neutral blend are one slice that can be
    # skipped, which saves half of the work. On an accelerator, its bounds would need a sync.
    hue_position = order.argsort(1)[:, HUE]
    rows = hue_position.argsort()
    a, b, c, _ = hue_position.bincount(minlength=4).cumsum(0).tolist()
    pre, post = [slice(a, None), slice(b, None), slice(c, None)], [slice(a), slice(b), slice(c)]
    x, factors, hue, order = x.index_select(0, rows), factors[rows], hue[rows], order[rows]
    return jitter_(x, factors, hue, order, pre, post).index_select(0, rows.argsort())


def channel_jitter(x: Tensor, factors: Tensor, hue: Tensor, order: Tensor) -> Tensor:
    """Change brightness and contrast of each channel of x [N, C, H, W] as of a gray image.

    `factors` [N, C, 3] and `order` [N, C, 4] are those of each channel; `hue` has no effect.
    """
    n, c, h, w = x.shape
    gray = x.reshape(n * c, 1, h, w)
    hue = hue.repeat_interleave(c)
    return color_jitter(gray, factors.flatten(0, 1), hue, order.flatten(0, 1)).view(n, c, h, w)


def jitter_(
    x: Tensor, factors: Tensor, hue: Tensor, order: Tensor, pre: list[slice], post: list[slice]
) -> Tensor:
    """Apply `color_jitter`, overwriting x: three blends, the hue shift, three blends.

    Brightness, contrast and saturation are blends. An example's k-th blend comes before or after
    its hue shift and is neutral in the other position, where it may be skipped: the k-th blend is
    applied to the slice `pre[k]` before the hue shift and to `post[k]` after it.
    """
    color, luma = x.shape[1] == 3, luma_weights(x)
    before = torch.arange(3, device=x.device) < order.argsort(1)[:, HUE, None]
    # The order without hue, [N, 3].
    kind = order.gather(1, torch.arange(3, device=x.device) + ~before)
    pixel_weights = (kind == SATURATION)[:, :, None] * luma
    mean_weights = (kind == CONTRAST)[:, :, None] * luma
    factors = factors.to(x.dtype).gather(1, kind).where((kind != SATURATION) | color, 1.0)
    first, second = factors.where(before, 1.0), factors.where(~before, 1.0)
    for k, part in enumerate(pre):
        blend_(x[part], first[part, k], pixel_weights[part, k], mean_weights[part, k])
    if color:
        x = adjust_hue(x, hue)
    for k, part in enumerate(post):
        blend_(x[part], second[part, k], pixel_weights[part, k], mean_weights[part, k])
    return x


def blend_(x: Tensor, factor: Tensor, pixel_weights: Tensor, mean_weights: Tensor) -> None:
    """Blend in place: x[N, C, H, W] <- clamp(f x + (1 - f) anchor), f = `factor` [N].

    A pixel's anchor is the sum of its channels by `pixel_weights` [N, C] plus the sum of the
    image's channel means by `mean_weights` [N, C]: 0 for brightness, the mean luma for contrast,
    the pixel's luma for saturation.
    """
    n, c, h, w = x.shape
    offset = (x.mean((2, 3)) * mean_weights).sum(1).view(n, 1, 1)
    anchor = torch.baddbmm(offset, pixel_weights[:, None], x.view(n, c, h * w)).view(n, 1, h, w)
    torch.lerp(anchor, x, factor.view(n, 1, 1, 1), out=x).clamp_(0, 1)


def luma_weights(x: Tensor) -> Tensor:
    """Return the weights [C] of the channels of `x` in its luma; equal unless there are three."""
    channels = x.shape[1]
    weights = LUMA if channels == 3 else (1 / channels,) * channels
    return constant(weights, x.dtype, x.device)


def adjust_hue(x: Tensor, shift: Tensor) -> Tensor:
    """Shift the HSV hue of color images [N, 3, H, W] by `shift` [N] turns, in [-1/2, 1/2].

    Let M and m be a pixel's largest and smallest channel and d = M - m. In sixths of a turn the
    hue is n / d with |n| = M - 2m + G + B - R and the sign of G - B, and a channel at position p
    of the circle (red 0, green 2, blue 4) has the value m + clamp(2d - |n - p d|, 0, d), with
    distances around the circle. Instead of n / d, the positions p are shifted, the other way: no
    division by d, which may be 0.
    """
    r, g, b = x.unbind(1)
    high = torch.maximum(torch.maximum(r, g), b)
    low = torch.minimum(torch.minimum(r, g), b)
    d = high - low
    n = (g + b).sub_(r).add_(high).sub_(low, alpha=2).copysign_(g - b)[:, None]
    position = 2 * torch.arange(3, device=x.device) - 6 * shift.to(x.dtype)[:, None]
    position = torch.remainder(position + 3, 6) - 3
    high, low, d = high[:, None], low[:, None], d[:, None]
    # |n - p d| is at most 6d, so | |n - p d| - 3d | is 3d minus the distance around the circle.
    out = d * position[:, :, None, None]
    torch.sub(n, out, out=out).abs_().sub_(d, alpha=3).abs_().add_(low - d)
    return torch.clamp(out, low, high, out=out)


def to_grayscale(x: Tensor, mask: Tensor) -> Tensor:
    """Replace color by luma where `mask` (bool [N]); images without 3 channels are unchanged."""
    n, c, h, w = x.shape
    if c != 3:
        return x
    luma = (luma_weights(x) @ x.reshape(n, c, h * w)).view(n, 1, h, w)
    return torch.lerp(luma, x, (~mask).to(x.dtype).view(n, 1, 1, 1))
