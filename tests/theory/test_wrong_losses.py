"""A lab that calls the library's losses fails when such a loss is wrong."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import widefield_labs as labs
from widefield.head.lazy_adamw import LazyAdamW
from widefield.methods.alpha_cl import alpha_cl, pair_importance
from widefield.methods.diet import index_cross_entropy, one_hot_error
from widefield.methods.infonce import infonce
from widefield.methods.spectral import spectral_contrastive
from widefield_labs import (
    LABS,
    contrastive_covariance,
    diet_is_spectral,
    diet_population,
    diet_toy,
    noise_helps,
    pair_gradients,
    row_replay,
)


def negated(loss):
    def minus(*args, **kwargs):
        return -loss(*args, **kwargs)

    return minus


def infonce_without_positive(f, f2, *, temperature, eps):
    return infonce(f, f, temperature=temperature, eps=eps)


def infonce_as_mean_of_softmax(f, f2, *, temperature, eps):
    return infonce(f, f2, temperature=temperature, eps=eps) / temperature


def importance_that_moves(f, f0, *, kind, temperature):
    distances = torch.cdist(f, f).square() / 2
    itself = torch.eye(len(f), dtype=torch.bool)
    return torch.softmax((-distances / temperature).masked_fill(itself, -torch.inf), dim=1)


def importance_at_twice_the_temperature(f, f0, *, kind, temperature):
    return pair_importance(f, f0, kind=kind, temperature=2 * temperature)


def alpha_cl_without_positive(f, f2, alpha):
    return alpha_cl(f, f, alpha)


def error_without_target(h, rows, target):
    return (h @ rows.T).square().sum(1).mean() / 2


def error_of_the_target_alone(h, rows, target):
    return ((h * rows[target]).sum(1) - 1).square().mean() / 2


def spectral_of_one_view(z1, z2):
    return spectral_contrastive(z1, z1)


def spectral_with_double_negatives(z1, z2):
    return spectral_contrastive(z1, z2) + 0.5 * (z1 @ z2.T).square().sum() / len(z1)


def smoothed_cross_entropy(h, rows, target, *, smoothing):
    return index_cross_entropy(h, rows, target, smoothing=0.1)


def cross_entropy_of_normalized_rows(h, rows, target, *, smoothing):
    return index_cross_entropy(h, F.normalize(rows, dim=1), target, smoothing=smoothing)


def without_decay(*args, weight_decay, **kwargs):
    return LazyAdamW(*args, weight_decay=0.0, **kwargs)


def gradients(generator):
    return pair_gradients.gradients(nets=1, pairs=8, generator=generator)


def convergence(generator):
    options = {"budget": 2**18, "temperature": 0.5, "noise": 0.3}
    return contrastive_covariance.convergence((16, 64), **options, generator=generator)


def both_minimizers(generator):
    data = diet_is_spectral.random_data(2, (12, 6, 10), 3, 0.5, generator)
    return {k: v.numpy() for k, v in diet_is_spectral.solve(data, 3, 25, generator).items()}


def toy(generator):
    return diet_toy.train_toy(
        shape=(4, 32, 4, 16, 4),
        deviations=(0.01, 0.1, 0.001),
        learning_rate=0.1,
        steps=400,
        generator=generator,
    )


def trained_plain(generator):
    heads = diet_population.isometric_heads(2, generator)
    x = torch.stack([diet_population.population(*case) for case in diet_population.PLAIN_CASES])
    return {"plain": diet_population.train_plain(x, heads, 40).numpy()}


def closed_form_gradient(generator):
    return {"gradient_gap": noise_helps.gradient_gap(generator).numpy()}


def head(generator):
    return row_replay.compare_head(1e-3, 0.05, generator)


CASES = [
    (pair_gradients, gradients, "infonce", negated(infonce)),
    (pair_gradients, gradients, "infonce", infonce_without_positive),
    (pair_gradients, gradients, "infonce", infonce_as_mean_of_softmax),
    (pair_gradients, gradients, "alpha_cl", negated(alpha_cl)),
    (pair_gradients, gradients, "alpha_cl", alpha_cl_without_positive),
    (pair_gradients, gradients, "pair_importance", importance_that_moves),
    (pair_gradients, gradients, "pair_importance", importance_at_twice_the_temperature),
    (contrastive_covariance, convergence, "pair_importance", importance_at_twice_the_temperature),
    (diet_is_spectral, both_minimizers, "one_hot_error", negated(one_hot_error)),
    (diet_is_spectral, both_minimizers, "one_hot_error", error_without_target),
    (diet_is_spectral, both_minimizers, "spectral_contrastive", spectral_of_one_view),
    (diet_is_spectral, both_minimizers, "spectral_contrastive", spectral_with_double_negatives),
    (diet_toy, toy, "one_hot_error", negated(one_hot_error)),
    (diet_toy, toy, "one_hot_error", error_of_the_target_alone),
    (diet_population, trained_plain, "one_hot_error", error_of_the_target_alone),
    (diet_population, trained_plain, "one_hot_error", error_without_target),
    (noise_helps, closed_form_gradient, "index_cross_entropy", negated(index_cross_entropy)),
    (noise_helps, closed_form_gradient, "index_cross_entropy", smoothed_cross_entropy),
    (noise_helps, closed_form_gradient, "index_cross_entropy", cross_entropy_of_normalized_rows),
    (row_replay, head, "LazyAdamW", without_decay),
    (row_replay, head, "LazyAdamW", partial(LazyAdamW, eps=1e-3)),
    (row_replay, head, "LazyAdamW", partial(LazyAdamW, bias_correction=False)),
]


LAB = {
    gradients: LABS["contrastive-covariance"],
    convergence: LABS["contrastive-covariance"],
    both_minimizers: LABS["diet-is-spectral"],
    toy: LABS["diet-toy"],
    trained_plain: LABS["diet-toy"],
    closed_form_gradient: LABS["noise-helps"],
    head: LABS["multistep"],
}
"""The lab that each of these measurements is a part of."""


def name_of(value):
    return (
        value if isinstance(value, str) else getattr(value, "__name__", "settings").split(".")[-1]
    )


@pytest.mark.parametrize("part", LAB, ids=name_of)
def test_the_right_loss_holds(part, tiny):
    assert verdict(part, tiny(LAB[part].name, 0).arrays) == "holds"


@pytest.mark.parametrize(("module", "part", "name", "wrong"), CASES, ids=name_of)
def test_a_wrong_loss_fails(module, part, name, wrong, tiny, monkeypatch):
    rest = tiny(LAB[part].name, 0).arrays  # with the right loss, and kept for other tests
    monkeypatch.setattr(module, name, wrong)
    assert verdict(part, rest) == "fails"


def test_every_call_of_a_loss_of_the_library_is_put_to_the_test():
    calls = set()
    for path in Path(labs.__file__).parent.glob("*.py"):
        for line in re.findall(
            r"^from widefield\.(?:methods|head)\.\w+ import (.+)$", path.read_text(), re.MULTILINE
        ):
            calls |= {(path.stem, name) for name in line.split(", ")}
    tested = {(module.__name__.split(".")[-1], name) for module, _, name, _ in CASES}
    assert calls == tested


def verdict(part, rest):
    """Measure a part of a lab again, and check it with the rest of what the lab measured."""
    again = part(torch.Generator().manual_seed(0))
    checks = LAB[part].check({**rest, **again})
    return "holds" if all(check.holds for check in checks) else "fails"
