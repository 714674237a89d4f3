"""Images of poor quality are listed, and images that are all alike are not."""

import numpy as np

from widefield.data.quality import _measures, image_quality

N = 40


def pictures(side: int = 24) -> np.ndarray:
    """Return textures of all gray values, each another one."""
    return np.random.default_rng(0).integers(0, 256, (N, side, side, 3), dtype=np.uint8)


def squares(side: int = 24) -> np.ndarray:
    return np.full((N, 2), side)


def found(images: np.ndarray, sizes: np.ndarray | None = None) -> dict[str, list[int]]:
    sizes = squares() if sizes is None else sizes
    return {name: rows.tolist() for name, rows in image_quality(images, sizes).items()}


def blurred(images: np.ndarray, times: int) -> np.ndarray:
    for _ in range(times):
        padded = np.pad(images.astype(float), ((1, 1), (1, 1), (0, 0)), mode="edge")
        images = sum(padded[i : i + 24, j : j + 24] for i in range(3) for j in range(3)) / 9
    return images


def test_each_kind_is_found_and_nothing_else() -> None:
    images = pictures()
    images[3] = images[3] // 8
    images[5] = 250 + images[5] // 64
    images[7] = blurred(images[7], 3).astype(np.uint8)
    images[7] = np.interp(images[7], (images[7].min(), images[7].max()), (0, 255))
    sizes = squares()
    sizes[11], sizes[12] = (600, 600), (72, 24)
    assert found(images, sizes) == {
        "dark": [3],
        "over-exposed": [5],
        "blurry": [7],
        "low-information": [5],
        "odd-sized": [11, 12],
    }


def test_clean_images_are_not_listed() -> None:
    assert not any(found(pictures()).values())


def test_what_all_images_have_in_common_is_no_fault() -> None:
    """The control: the same dark images, where they are the rule."""
    sizes = np.full((N, 2), (72, 24))
    assert not any(found(pictures() // 8, sizes).values())
    assert not any(found(np.zeros((N, 24, 24, 3), np.uint8)).values())


def test_the_darkest_comes_first() -> None:
    images = pictures()
    images[3], images[9] = images[3] // 8, images[9] // 16
    assert found(images)["dark"] == [9, 3]


def test_measures_are_those_of_one_image_at_a_time() -> None:
    images = pictures()[:4, :9, :7]
    for image, measured in zip(images, _measures(images).T, strict=True):
        gray = image.astype(float).mean(-1) / 255
        _, counts = np.unique(np.round(255 * gray), return_counts=True)
        share = counts / gray.size
        edges = [
            gray[i - 1, j] + gray[i + 1, j] + gray[i, j - 1] + gray[i, j + 1] - 4 * gray[i, j]
            for i in range(1, 8)
            for j in range(1, 6)
        ]
        expected = [
            np.percentile(gray, 99),
            np.percentile(gray, 5),
            -(share * np.log2(share)).sum(),
            np.std(edges) / gray.std(),
        ]
        np.testing.assert_allclose(measured, expected, rtol=1e-4)


def test_images_too_small_for_edges_are_not_blurry() -> None:
    images = pictures()[:, :2]
    assert found(images)["blurry"] == []
