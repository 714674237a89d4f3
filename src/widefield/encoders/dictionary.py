"""A dictionary of patches: local features that k-means finds in the data, without labels.

For patches p in R^K of the normalized input, K = C r r' values of r x r' positions:

    u = (p - mean(p)) / sqrt(var(p) + epsilon_n)            local contrast normalization
    q = W (u - m),   W = (Cov(u) + epsilon_w I)^(-1/2)      ZCA whitening
    D = argmax_D sum_q max_j (d_j^T q)^2,   |d_j| = 1       spherical k-means
    f = [max(0, D q - theta), max(0, -D q - theta)]         soft threshold, both signs

These features do not depend on the brightness and color of a patch, so there are others of c in
R^C, the mean of each channel, with E the centers of k-means:

    z_j = |V (c - mean(c)) - e_j|,   V = (Cov(c) + epsilon_w I)^(-1/2)
    t_j = max(0, mean_j(z_j) - z_j)                         triangle activation

Once fitted, f is one convolution. With w_j = W d_j less its mean, and b_j = d_j^T W m,

    d_j^T q = w_j^T p / sqrt(var(p) + epsilon_n) - b_j

and var(p) follows from the running means of the input and of its square.

Sources: Coates, Ng & Lee (2011), section 3; spherical k-means by Coates & Ng (2012), section 2.
That the means of patches have centers of their own is ours.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.core.devices import without_autocast
from widefield.core.hardware import limited_threads
from widefield.core.types import Size

_FILTERS = 64
"""Number of filters N."""
# Chosen by hand, after 16, 24 and 64 were tried on photographs.
_COLORS = 32
"""Number of centers M of the means of patches."""
FEATURES = 2 * _FILTERS + _COLORS
"""Number of features of a patch, F = 2 N + M."""
# The patches of Coates, Ng & Lee (2011).
_SIDE = 6
"""Rows and columns of a patch."""
# Chosen by hand: 27 x 27 patches of CIFAR's images, and 32 x 32 of those of 224 pixels. Every
# second patch was tried too: in half of the time, with the same accuracy for the class, and a lower
# one for small digits.
_POSITIONS = 32
"""Patches in a row, about, at most."""
# Chosen by hand: later layers cost a ninth.
_POOL = 3
"""Rows and columns of patches whose features are averaged."""
# Chosen by hand, after 2 x 2 and 3 x 3 were tried on images of 32 pixels.
CELLS = 3
"""Rows and columns of cells that features are averaged over."""
# Eigenvalues below it, relative to the largest, are rounding.
_NEGLIGIBLE = 1e-6
# Coates & Ng (2012) add 10 to the variance of pixels in [0, 255]. Divided by 255^2 and by the
# variance of a channel, about 1 / 16, it is this number.
_CONTRAST_EPSILON = 2.5e-3
"""Added to the variance of a patch: less contrast than this is taken for noise."""
# From Coates & Ng (2012), for patches of unit variance.
_WHITENING_EPSILON = 0.1
"""Added to the eigenvalues of the covariance."""
# From Coates, Ng & Lee (2011), section 4.2, alpha.
THRESHOLD = 0.25
"""Threshold theta of a feature."""
# From Coates & Ng (2012): k-means on the sphere has nearly converged then.
_ITERATIONS = 10
# 60,000 patches of 6 x 6 x 3 values are 26 MB.
_PER_EXAMPLE = 30
"""Patches of an example."""
_EXAMPLES = 2000
"""Examples whose patches are used, about; of more examples, fewer patches."""
_VALUES = 2**24
"""Largest number of values of all patches: there are fewer where they have many channels."""
_PART = 20_000
"""Patches that k-means assigns at a time."""
# The maps of 8 images stay in a processor's cache, so that they take less time than those of 256.
_IMAGES = 8
"""Images whose maps are computed at a time."""


class PatchDictionary(nn.Module):
    """Features of patches, averaged: x[B, C, H, W] -> [f, t] [B, 2 N + M, h, w].

    Patches have 6 x 6 positions, of windows 1 x 6, and means are over 3 x 3 patches. Larger inputs
    are averaged first, and their patches are further apart, so that a map costs about the same. The
    layer has no parameters: `fit` replaces its random filters and centers, and training changes
    nothing.
    """

    weight: Tensor
    offset: Tensor
    whitening: Tensor
    centers: Tensor

    def __init__(self, channels: int, size: Size) -> None:
        super().__init__()
        (one, rows, down), (two, columns, right) = map(_geometry, size)
        self.scale, self.side, self.stride = (one, two), (rows, columns), (down, right)
        self.register_buffer("weight", torch.empty(_FILTERS, channels, rows, columns))
        self.register_buffer("offset", torch.empty(_FILTERS))
        self.register_buffer("whitening", torch.empty(channels, channels))  # V
        self.register_buffer("centers", torch.randn(_COLORS, channels))  # e_j + V mean(c)
        if not self.weight.is_meta:
            self.whitening.copy_(torch.eye(channels))
            filters = functional.normalize(torch.randn(_FILTERS, channels * rows * columns), dim=1)
            self._set(filters, torch.zeros(_FILTERS))

    def extra_repr(self) -> str:
        count, channels = self.weight.shape[:2]
        return f"{channels}, {self.side}, filters={count}, scale={self.scale}, stride={self.stride}"

    def fit(self, batches: Iterable[Tensor], *, seed: int) -> None:
        """Fit the dictionary on patches of normalized inputs x[n, C, H, W], up to 60,000 in all."""
        # The last bits of sums over patches depend on the threads, and assignments on these.
        with limited_threads(1), torch.no_grad():
            generator = torch.Generator().manual_seed(seed)
            patches = self._sampled(batches, generator)
            if not patches.isfinite().all():
                raise ValueError("the images contain NaN or infinity: repair or leave them out")
            u = normalize_contrast(patches)
            mean, whitening = zca(u)
            centers = spherical_k_means((u - mean) @ whitening, len(self.weight), generator)
            filters = centers @ whitening
            self._set(filters, filters @ mean)
            colors = patches.reshape(len(patches), self.weight.shape[1], -1).mean(2)
            mean, whitening = zca(colors)
            centers = k_means((colors - mean) @ whitening, len(self.centers), generator)
            self.whitening.copy_(whitening)
            self.centers.copy_(centers + mean @ whitening)

    def _sampled(self, batches: Iterable[Tensor], generator: torch.Generator) -> Tensor:
        """Return patches of all inputs, equally many of each."""
        each = max(1, min(_PER_EXAMPLE, _VALUES // (_EXAMPLES * self.weight[0].numel())))
        parts = (functional.avg_pool2d(x.cpu(), self.scale) for x in batches)
        patches = torch.cat([sample_patches(x, self.side, each * len(x), generator) for x in parts])
        if len(patches) <= _EXAMPLES * each:
            return patches
        return patches[torch.randperm(len(patches), generator=generator)[: _EXAMPLES * each]]

    def _set(self, filters: Tensor, offset: Tensor) -> None:
        """Set filters [N, K] of contrast-normalized patches, and their offsets [N]."""
        # mean(p) drops out of w^T (p - mean(p)) if the values of w have the sum 0.
        weight = (filters - filters.mean(1, keepdim=True)).reshape(self.weight.shape)
        self.weight.copy_(weight)
        self.offset.copy_(offset)

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean features of normalized inputs [B, C, H, W], in float32."""
        with torch.no_grad(), without_autocast(x.device):
            x = x.float()
            x = x if self.scale == (1, 1) else functional.avg_pool2d(x, self.scale)
            means, variance = self.moments(x)
            if x.device.type != "cpu" or torch.compiler.is_compiling():
                return self._features(x, means, variance)
            parts = (torch.split(part, _IMAGES) for part in (x, means, variance))
            return torch.cat([self._features(*part) for part in zip(*parts, strict=True)])

    def _features(self, x: Tensor, means: Tensor, variance: Tensor) -> Tensor:
        # Both maps are channels last in memory, which takes half of the time to threshold and pool.
        f, t = self.responses(x, variance), self.activations(means)
        pool = (min(_POOL, f.shape[2]), min(_POOL, f.shape[3]))
        f = soft_threshold_means(f, THRESHOLD, pool)
        return torch.cat([f, functional.avg_pool2d(t, pool)], dim=1)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return c [B, C, h, w] and var(p) [B, 1, h, w] of every patch of averaged inputs."""
        moments = torch.cat([x, x.square().mean(1, keepdim=True)], dim=1)
        # Products with two matrices take a quarter of the time of average pooling.
        rows, columns = (
            window_means(*axis, like=x)
            for axis in zip(x.shape[2:], self.side, self.stride, strict=True)
        )
        moments = rows @ (moments @ columns.T)
        means, square = moments[:, :-1], moments[:, -1:]
        # Rounding makes the difference negative where a patch is constant.
        return means, (square - means.mean(1, keepdim=True).square()).clamp_min(0)

    def responses(self, x: Tensor, variance: Tensor) -> Tensor:
        """Return d_j^T q of every patch, [B, N, h, w]."""
        x = x.contiguous(memory_format=torch.channels_last)
        f = functional.conv2d(x, self.weight.float(), stride=self.stride)
        scale = (variance + _CONTRAST_EPSILON).rsqrt_()
        return f.mul_(scale).sub_(self.offset.float()[:, None, None])

    def activations(self, means: Tensor) -> Tensor:
        """Return t of every patch, [B, M, h, w]."""
        batch, _, height, width = means.shape
        q = means.permute(0, 2, 3, 1).flatten(0, 2) @ self.whitening.float().T
        centers = self.centers.float()
        # |q - e|^2, without a tensor of all differences
        z = torch.addmm(centers.square().sum(1), q, centers.T, alpha=-2)
        z = z.add_(q.square().sum(1, keepdim=True)).clamp_min_(0).sqrt_()
        t = (z.mean(1, keepdim=True) - z).relu_()
        return t.view(batch, height, width, -1).permute(0, 3, 1, 2)


class CellFeatures(nn.Module):
    """Whitened features of a dictionary over cells: f[B, F, h, w] -> k[B, width].

        k = V^T (sqrt(mean of f over 3 x 3 cells) - m)

    f are the F = 2 N + M features of a `PatchDictionary`. V has the leading eigenvectors of the
    covariance of these roots, each divided by its deviation. Those without variance are 0. Maps of
    height 1 have nine cells in a row.
    """

    center: Tensor
    directions: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        count = FEATURES * CELLS**2
        self.register_buffer("center", torch.zeros(count))
        self.register_buffer("directions", torch.empty(count, width).normal_(std=count**-0.5))

    def fit(self, maps: Iterable[Tensor]) -> None:
        """Fit m and V on maps f[n, F, h, w]."""
        # The last bits of sums depend on the number of threads.
        with torch.no_grad(), limited_threads(1):
            x = torch.cat([cell_roots(f) for f in maps]).double()
            self.center.copy_(x.mean(0))
            self.directions.copy_(whitened_directions(x - x.mean(0), self.directions.shape[1]))

    def forward(self, f: Tensor) -> Tensor:
        """Return k in float32."""
        with without_autocast(f.device):
            return (cell_roots(f) - self.center.float()) @ self.directions.float()


def cell_roots(f: Tensor) -> Tensor:
    """Return sqrt(mean of f over cells), [B, 9 F], of maps f[B, F, h, w]."""
    cells = (1, CELLS**2) if f.shape[2] == 1 else (CELLS, CELLS)
    # The root makes features that are mostly near 0, and large on few examples, more even.
    return functional.adaptive_avg_pool2d(f.float(), cells).flatten(1).sqrt()


def whitened_directions(x: Tensor, width: int) -> Tensor:
    """Return V [K, width] of `CellFeatures` for rows x [n, K] of mean 0, K = 9 F."""
    few = len(x) < x.shape[1]  # then x x^T is smaller, and has the same eigenvalues
    values, vectors = torch.linalg.eigh((x @ x.T if few else x.T @ x) / len(x))
    values, vectors = values.flip(0)[:width], vectors.flip(1)[:, :width]
    nonzero = values > max(_NEGLIGIBLE * float(values[0]), torch.finfo(x.dtype).tiny)
    scale = torch.where(nonzero, values, torch.inf).rsqrt()
    if few:  # x^T u has the length sqrt(n lambda)
        vectors = x.T @ vectors * (scale / len(x) ** 0.5)
    return functional.pad(vectors * scale, (0, width - vectors.shape[1]))


def _geometry(length: int) -> tuple[int, int, int]:
    """Return how many values of a side are averaged, the patch's side and its stride."""
    step = max(1, length // _POSITIONS)
    scale = max(1, step // 2)
    return scale, min(_SIDE, length // scale), step // scale


def window_means(length: int, side: int, stride: int, *, like: Tensor) -> Tensor:
    """Return the matrix [h, length] whose product with a column has the means of its windows."""
    count = (length - side) // stride + 1
    first = stride * torch.arange(count, device=like.device)[:, None]
    offset = torch.arange(length, device=like.device) - first
    return ((offset >= 0) & (offset < side)).to(like.dtype) / side


def sample_patches(x: Tensor, side: Size, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` patches [count, C r r'] at random places of inputs x[n, C, H, W]."""
    n, _, height, width = x.shape
    rows, columns = side
    bounds = (n, height - rows + 1, width - columns + 1)
    image, top, left = (torch.randint(k, (count,), generator=generator) for k in bounds)
    down, right = (
        top[:, None, None] + torch.arange(rows)[:, None],
        left[:, None, None] + torch.arange(columns),
    )
    return x[image[:, None, None], :, down, right].permute(0, 3, 1, 2).flatten(1)


def normalize_contrast(patches: Tensor) -> Tensor:
    """Return (p - mean(p)) / sqrt(var(p) + epsilon) of patches [n, K]."""
    centered = patches - patches.mean(1, keepdim=True)
    return centered * (centered.square().mean(1, keepdim=True) + _CONTRAST_EPSILON).rsqrt()


def zca(u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean [K] of u [n, K] and (Cov(u) + epsilon I)^(-1/2), symmetric [K, K]."""
    mean = u.double().mean(0)
    centered = u.double() - mean
    values, vectors = torch.linalg.eigh(centered.T @ centered / len(u))
    whitening = (vectors * (values + _WHITENING_EPSILON).rsqrt()) @ vectors.T
    return mean.float(), whitening.float()


def spherical_k_means(q: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return unit vectors [count, K] that whitened patches q [n, K] are near, up to sign.

    In each iteration, d_j <- d_j + sum of (d_j^T q) q over the patches q with the largest
    |d_j^T q|, at unit length. A center without patches stays as it is.
    """
    centers = functional.normalize(torch.randn(count, q.shape[1], generator=generator), dim=1)
    for _ in range(_ITERATIONS):
        sums = torch.zeros_like(centers)
        for part in torch.split(q, _PART):
            products = part @ centers.T
            nearest = products.abs().argmax(1, keepdim=True)
            sums.index_add_(0, nearest[:, 0], products.gather(1, nearest) * part)
        centers = functional.normalize(centers + sums, dim=1)
    return centers


def k_means(q: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return centers [count, C] of rows q [n, C], which begin at rows drawn by lot.

    In each iteration, e_j <- the mean of the rows that it is the nearest center of. A center
    without rows stays as it is.
    """
    centers = q[torch.randint(len(q), (count,), generator=generator)]
    for _ in range(_ITERATIONS):
        nearest = torch.cat(
            [torch.cdist(part, centers).argmin(1) for part in torch.split(q, _PART)]
        )
        sums = torch.zeros_like(centers).index_add_(0, nearest, q)
        counts = torch.bincount(nearest, minlength=count)[:, None]
        centers = torch.where(counts > 0, sums / counts, centers)
    return centers


def soft_threshold_means(f: Tensor, threshold: float, pool: Size) -> Tensor:
    """Return means of max(0, f - threshold) and max(0, -f - threshold) over windows of a map.

    From [B, N, h, w] to [B, 2 N, h', w'].
    """
    # With s = max(0, f - threshold) - max(0, -f - threshold), these are (|s| + s) / 2 and
    # (|s| - s) / 2, which takes fewer passes over the map.
    s = functional.softshrink(f, threshold)
    signed = functional.avg_pool2d(s, pool)
    absolute = functional.avg_pool2d(s.abs_(), pool)
    return torch.cat([absolute + signed, absolute - signed], dim=1) / 2
