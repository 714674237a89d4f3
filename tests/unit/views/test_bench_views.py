import importlib.util

import pytest

from widefield.bench.views import bench


def test_speeds_are_compared_on_the_same_images() -> None:
    result = bench(batch_size=8, image_size=16, repeats=2)
    torchvision = {"widefield/torchvision", "widefield/torchvision_pil"}
    assert torchvision <= set(result["ratios"]) <= torchvision | {"widefield/kornia"}
    assert min(result["ratios"].values()) > 0
    values = result["values"]
    assert values["widefield_images_per_second"] > 0
    assert (values["batch_size"], values["image_size"]) == (8, 16)


def test_kornia_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "kornia" else find(name)
    )
    ratios = bench(batch_size=2, image_size=8, repeats=1)["ratios"]
    assert list(ratios) == ["widefield/torchvision", "widefield/torchvision_pil"]
