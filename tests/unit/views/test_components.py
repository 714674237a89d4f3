"""Each component of a policy is the policy with all other operations disabled."""

import pytest
import torch
from torch import Tensor

from draws import generator
from widefield.core.logmel import FrontEnd
from widefield.views import (
    VIEWS,
    Augmentation,
    Chain,
    ImageAugmentation,
    Viewmaker,
    ViewSettings,
    build_views,
    view_components,
)
from widefield.views.image import Draw
from widefield.views.spectrogram import Spectrogram

ALL = ["crop", "flip", "jitter", "grayscale", "blur"]
FRONT_END = FrontEnd(rate=4000, samples=4000)


def components(names: str) -> dict[str, Augmentation]:
    return view_components(names, build_views(names))


def sound_components(names: str) -> dict[str, Augmentation]:
    views = ViewSettings.named(names).build(channels=1, kind="sounds", front_end=FRONT_END)
    return view_components(names, views)


def only(draw: Draw, component: str, n: int, side: int) -> Draw:
    """Return the draw with neutral parameters of all operations but one."""
    whole = torch.tensor([0.0, 0.0, side, side]).expand(n, 4)
    return Draw(
        boxes=draw.boxes if component == "crop" else whole,
        flip=draw.flip if component == "flip" else torch.zeros(n, dtype=torch.bool),
        factors=draw.factors,
        hue=draw.hue,
        order=draw.order,
        grayscale=draw.grayscale,
        sigma=draw.sigma,
    )


def one_after_the_other(policy: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the view of a policy, and that of its components in turn, of the same draw."""
    views = build_views(policy)
    assert isinstance(views, ImageAugmentation)
    draw, view = views.draw(x, generator()), x
    for name, part in view_components(policy, views).items():
        assert isinstance(part, ImageAugmentation)
        view = part.transform(view, only(draw, name, len(x), x.shape[-1]))
    return views.transform(x, draw), view


@pytest.mark.parametrize("policy", ["expert", "expert:feature-dropout", "gentle", "color", "crop"])
def test_components_in_turn_are_the_policy(policy: str) -> None:
    x = torch.rand(32, 3, 16, 16, generator=generator())
    whole, in_turn = one_after_the_other(policy, x)
    torch.testing.assert_close(in_turn, whole, atol=1e-5, rtol=0)


def test_without_one_component_they_are_not() -> None:
    x = torch.rand(32, 3, 16, 16, generator=generator())
    views = build_views("expert:feature-dropout")
    assert isinstance(views, ImageAugmentation)
    draw = views.draw(x, generator())
    whole = views.transform(x, draw)
    for left_out in ALL:
        view = x
        for name, part in view_components("expert", views).items():
            assert isinstance(part, ImageAugmentation)
            if name != left_out:
                view = part.transform(view, only(draw, name, len(x), 16))
        assert float((view - whole).abs().max()) > 0.1, left_out


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("expert", ALL[:4]),
        ("expert:feature-dropout", ALL),
        ("gentle", ["crop", "jitter", "grayscale"]),
        ("none", []),
        ("crop", ["crop"]),
        ("noise", ["noise"]),
        ("gentle+noise", ["crop", "jitter", "grayscale", "noise"]),
        ("gentle+none+crop", ["crop", "jitter", "grayscale", "crop 2"]),
        ("crop+crop+crop", ["crop", "crop 2", "crop 3"]),
        ("expert:stacked", [*ALL[:4], "stacked crop", "stacked jitter", "stacked blur"]),
        ("flip+adversarial", ["flip", "adversarial"]),
    ],
)
def test_the_names_of_components(policy: str, expected: list[str]) -> None:
    assert list(components(policy)) == expected


def test_components_keep_the_strength_of_their_policy() -> None:
    parts = components("gentle+expert:feature-dropout")
    crops = [part.crop_scale for name, part in parts.items() if name.startswith("crop")]  # type: ignore[union-attr]
    assert crops == [(0.7, 1.0), (0.2, 1.0)]
    blur = parts["blur"]
    assert isinstance(blur, ImageAugmentation)
    assert (blur.blur_sigma, blur.blur_prob, blur.flip_prob) == ((0.1, 2.0), 0.5, 0)
    assert blur.blur is build_views("expert:feature-dropout").blur


def test_every_component_changes_the_images() -> None:
    """Those of stacked channels change their own alone."""
    x = torch.rand(16, 4, 16, 16, generator=generator())
    for name, part in components("expert:stacked").items():
        (view,) = part(x, 1, generator())
        changed = (view - x).abs().amax((0, 2, 3)) > 1e-3
        expected = [name.startswith("stacked")] * 4
        expected[:3] = [not expected[3] and name != "grayscale"] * 3
        if name != "grayscale":
            assert changed.tolist() == expected, name


def test_learned_views_are_shared() -> None:
    views = build_views("viewmaker+flip")
    assert isinstance(views, Chain)
    part = view_components("viewmaker+flip", views)["viewmaker"]
    assert isinstance(part, Viewmaker)
    assert part is views.parts[0]


def test_each_component_of_sounds_is_seen_as_a_spectrogram() -> None:
    x = torch.rand(4, 1, 1, 4000, generator=generator()) - 0.5
    parts = sound_components("expert+noise+time-mask")
    assert list(parts) == ["waveaug", "time-mask", "specaug", "noise"]
    (plain,) = Spectrogram(FRONT_END)(x, 1)
    for name, part in parts.items():
        (view,) = part(x, 1, generator())
        assert view.shape == plain.shape
        assert float((view - plain).abs().max()) > 0.01, name
    assert sound_components("none") == {}


@pytest.mark.parametrize("policy", VIEWS)
def test_every_policy_has_components(policy: str) -> None:
    samples = VIEWS[policy].stage in ("samples", "spectrogram")
    parts = sound_components(policy) if samples else components(policy)
    assert bool(parts) == (policy != "none")
