"""Views of sounds: waveforms, spectrograms, and the order of the two."""

import math

import pytest
import torch
from torch import Tensor

from draws import generator
from widefield.core.logmel import FrontEnd, LogMel
from widefield.views import Augmentation, Chain, ViewSettings, build_views
from widefield.views.waveform import WaveAugment, time_stretch

RATE, STEPS = 4000, 4000
FRONT_END = FrontEnd(rate=RATE, samples=STEPS)


def tone(hertz: float, n: int = 1) -> Tensor:
    time = torch.arange(STEPS) / RATE
    return torch.sin(2 * math.pi * hertz * time).expand(n, 1, 1, STEPS).clone()


def build(names: str) -> Augmentation:
    views = ViewSettings.named(names)
    return views.build(channels=1, kind="sounds", front_end=FRONT_END)


def center(x: Tensor) -> Tensor:
    """The mean frequency, weighted by power: grains add sidebands on both sides of a tone."""
    power = torch.fft.rfft(x).abs().square()
    hertz = torch.fft.rfftfreq(x.shape[-1], 1 / RATE)
    return (power * hertz).sum(-1) / power.sum(-1)


def factors(value: float) -> Tensor:
    return torch.full((1, 1, 1, 1), value)


def test_as_it_is_at_pitch_and_speed_one() -> None:
    x = torch.randn(3, 1, 1, STEPS, generator=generator())
    one = torch.ones(3, 1, 1, 1)
    torch.testing.assert_close(time_stretch(x, one, one, 0 * one), x, atol=1e-4, rtol=0)


@pytest.mark.parametrize("pitch", [0.8, 1.25])
def test_pitch_moves_frequencies_and_speed_does_not(pitch: float) -> None:
    x, one = tone(400.0), factors(1.0)
    higher = time_stretch(x, factors(pitch), one, 0 * one)
    assert float(center(higher)) == pytest.approx(400 * pitch, rel=0.03)
    faster = time_stretch(x, one, factors(pitch), 0 * one)
    assert float(center(faster)) == pytest.approx(400, rel=0.03)


def test_speed_moves_events_around_the_middle() -> None:
    x = torch.zeros(1, 1, 1, STEPS)
    x[..., 1000:1040] = torch.randn(40, generator=generator())
    slow = time_stretch(x, factors(1.0), factors(0.8), factors(0.0))
    energy = slow.square()[0, 0, 0]
    center = float((energy * torch.arange(STEPS)).sum() / energy.sum())
    assert center == pytest.approx(2000 - (2000 - 1020) / 0.8, abs=100)


def test_what_lies_beyond_the_ends_is_silence() -> None:
    x = torch.ones(1, 1, 1, STEPS)
    shifted = time_stretch(x, factors(1.0), factors(1.0), factors(0.25))[0, 0, 0]
    assert float(shifted[-900:].abs().max()) < 1e-4
    assert float((shifted[:2900] - 1).abs().max()) < 1e-4


def test_waveaug_draws_each_view_by_itself() -> None:
    x = tone(500.0, 64)
    one, two = build_views("waveaug")(x, 2, generator())
    assert bool((one != two).flatten(1).any(1).all())
    assert bool((one[:-1] != one[1:]).flatten(1).any(1).all())
    views = WaveAugment(pitch=0.15, speed=0.0, shift=0.0, noise_db=(80, 80), band=1e-6, drop=1e-6)
    found = center(views(x, 1, generator())[0])[:, 0, 0] / 500
    assert 0.83 < float(found.min()) < 0.9
    assert 1.1 < float(found.max()) < 1.2


def test_silence_stays_silence() -> None:
    for name in ("waveaug", "waveaug:published"):
        (view,) = build_views(name)(torch.zeros(8, 1, 1, STEPS), 1, generator())
        assert torch.isfinite(view).all()
        assert float(view.abs().max()) == 0


def test_the_published_waveform_views_keep_one_run() -> None:
    x = torch.ones(400, 1, 1, STEPS)
    (view,) = build_views("waveaug:published")(x, 1, generator())
    level = view[:, 0, 0].unfold(1, 100, 100).mean(2)
    kept = (level > 0.5).float()
    assert float(kept.mean()) == pytest.approx(0.54, abs=0.03)
    assert bool(((kept[:, 1:] - kept[:, :-1]).abs().sum(1) <= 2).all())


@pytest.mark.parametrize(
    ("name", "most", "share"), [("specaug", 0.3, 0.15), ("specaug:published", 0.625, 0.3125)]
)
def test_specaug_covers_a_run_of_rows_and_one_of_columns(
    name: str, most: float, share: float
) -> None:
    x = torch.rand(500, 1, 64, 64, generator=generator(1), dtype=torch.float64)
    views = build_views(name)
    views.noise = 0.0
    (view,) = views(x, 1, generator())
    covered = (view == x.mean((1, 2, 3), keepdim=True))[:, 0]
    rows, columns = covered.all(2), covered.all(1)
    assert torch.equal(covered, rows[:, :, None] | columns[:, None, :])
    assert torch.equal(view[:, 0][~covered], x[:, 0][~covered])
    for lines in (rows, columns):
        part = lines.double().mean(1)
        assert float(part.max()) <= most + 1 / 64
        assert float(part.mean()) == pytest.approx(share, abs=0.02)


def test_the_published_one_adds_noise_of_a_quarter_of_the_deviation() -> None:
    x = torch.rand(50, 1, 64, 64, generator=generator(1))
    noisy, plain = build_views("specaug:published"), build_views("specaug:published")
    plain.noise = 0.0
    (one,), (two,) = noisy(x, 1, generator()), plain(x, 1, generator())
    difference = (one[:1] - two[:1]).std()
    assert float(difference) == pytest.approx(0.25 * float(x.std()), rel=0.1)


@pytest.mark.parametrize(
    "names", ["waveaug+specaug", "specaug+waveaug", "specaug+waveaug+noise", "viewmaker+jitter"]
)
def test_waveforms_come_before_the_spectrogram_whatever_the_order(names: str) -> None:
    views = build(names)
    assert isinstance(views, Chain)
    kinds = [type(part).__name__ for part in views.modules()]
    before, after = (
        {"waveaug": "WaveAugment", "jitter": "Jitter"},
        {"specaug": "SpecAugment", "noise": "Noise", "viewmaker": "Viewmaker"},
    )
    middle = kinds.index("Spectrogram")
    for name in names.split("+"):
        if name in before:
            assert kinds.index(before[name]) < middle
        else:
            assert kinds.index(after[name]) > middle
    drawn = [view.detach() for view in views(0.1 * tone(300.0, 4), 2, generator())]
    assert [view.shape for view in drawn] == [(4, 1, 64, 64)] * 2
    assert all(0 <= float(view.min()) <= float(view.max()) <= 1 for view in drawn)


def test_none_is_the_spectrogram_alone() -> None:
    x = 0.1 * tone(300.0, 2)
    (view,) = build("none")(x, 1, generator())
    assert torch.equal(view, LogMel(FRONT_END)(x))


def test_evaluation_gives_the_waveform_itself() -> None:
    x = tone(300.0)
    assert build("waveaug+specaug").eval()(x, 1)[0] is x


@pytest.mark.parametrize("names", ["crop", "mask-viewmaker", "flip+waveaug", "expert:stacked"])
def test_views_of_images_alone_are_refused(names: str) -> None:
    with pytest.raises(ValueError, match="do not change sounds"):
        build(names)


def test_views_of_spectrograms_need_an_encoder_that_sees_them() -> None:
    views = ViewSettings.named("specaug")
    with pytest.raises(ValueError, match="as this encoder sees them"):
        views.build(channels=1, kind="sounds")
    (wave,) = ViewSettings().build(channels=1, kind="sounds")(tone(300.0), 1, generator())
    assert wave.shape == (1, 1, 1, STEPS)
