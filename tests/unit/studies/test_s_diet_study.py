"""The measures and criteria of S-DIET's and Tian's studies, and the script that runs all."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from studies import s_diet, s_diet_steps, tian
from studies.registry import studies
from studies.runner import verdicts
from studies.s_diet import T1, T3, above_best
from studies.study import TINY, Arm
from studies.trained import run_settings

ROOT = Path(__file__).parents[3]
SMALL = replace(s_diet_steps.CASES["CIFAR R18"], encoder="resnet-tiny", size=8, examples=40)


def runs(**arms):
    """Return runs of three seeds: arm -> measures, with a little noise between the seeds."""
    return {
        f"{arm} | seed {seed}": {"measured": {k: v + 0.01 * seed for k, v in measured.items()}}
        for arm, measured in arms.items()
        for seed in range(3)
    }


def test_settings_of_a_method_come_from_the_scale_and_the_arm_has_the_last_word():
    scale = replace(TINY, of_method={"simclr": {"lr": 0.3, "temperature": 0.2}})
    arm = Arm(data="cifar10", settings={"method": "simclr", "lr": 0.1})
    given = run_settings(arm, scale, seed=0)
    assert (given["lr"], given["temperature"], given["projector_width"]) == (0.1, 0.2, 32)
    for settings in ({"method": "diet"}, {"method": "s-diet", "projector_layers": 0}):
        assert "projector_width" not in run_settings(
            Arm(data="cifar10", settings=settings), scale, 0
        )


@pytest.mark.parametrize(("after", "expected"), [(15.0, "holds"), (17.0, "does not hold")])
def test_findings_of_table_4(after, expected):
    normalized = {
        "class, %": 16.0,
        "before minus after, %": 16.0 - after,
        "singular values above a tenth": 30.0,
    }
    others = {"class, %": 10.0, "singular values above a tenth": 2.0}
    arms = dict.fromkeys(list(T3.arms)[1:], others) | {"normalized": normalized}
    found = verdicts(T3, "cpu", runs(**arms))
    assert found["SD-T4 R18"]["verdict"] == expected
    assert {found[name]["verdict"] for name in ("SD-T3", "SD-F1c", "SD-5.1.2")} == {"holds"}


def test_an_encoder_at_chance_decides_nothing_on_the_stacked_digit():
    low = {"digit kept, %": 11.0, "digit masked, %": 11.0}
    found = verdicts(T1, "cpu", runs(**dict.fromkeys(T1.arms, low)))
    assert {verdict["verdict"] for verdict in found.values()} == {"cannot tell"}


def test_the_best_of_the_others_is_what_counts():
    of_seed = {"a": {"x": 3.0}, "b": {"x": 1.0}, "c": {"x": 5.0}}
    assert above_best("x", "a", "b", "c")(of_seed) == -2
    assert above_best("x", "a", "b")(of_seed) == 2


def test_neighbors_in_a_map_are_of_the_class_of_their_cluster():
    at = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(40) % 2
    apart = at + 100 * y[:, None]
    assert s_diet._neighbors_class(apart, y) == 100
    assert s_diet._neighbors_class(at, y) < 75


def test_gradients_are_equal_where_the_batch_is_all_examples():
    g = torch.Generator().manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, generator=g)
    view, rows = torch.rand(6, 3, 2, 2, generator=g), torch.randn(60, 5, generator=g)
    index = torch.arange(6)
    of_all = s_diet_steps.cosine(encoder, nn.Identity(), view, index, rows[:6])
    of_some = s_diet_steps.cosine(encoder, nn.Identity(), view, index, rows)
    assert of_all == pytest.approx(1)
    assert of_some < 0.999


@pytest.mark.parametrize("method", ["s-diet", "diet", "byol"])
def test_two_short_batches_give_the_memory_of_a_long_one(monkeypatch, method):
    monkeypatch.setattr(s_diet_steps, "BATCH", 16)
    case = replace(SMALL, short=4)
    step = s_diet_steps.Step(method, case)
    exact = step.state_bytes() + s_diet_steps.Step(method, case).saved_bytes(16)
    assert s_diet_steps.account(method, case) == pytest.approx(exact / 2**20, rel=0.01, abs=0.05)


def test_diet_holds_a_row_of_every_example_with_its_gradient_and_moments():
    few, many = (
        s_diet_steps.Step("diet", replace(SMALL, examples=n)).state_bytes() for n in (40, 140)
    )
    dim = s_diet_steps.Step("diet", SMALL).encoder.dim
    assert many - few == 4 * 4 * 100 * dim


def test_a_saving_is_against_the_least_of_the_others():
    of_seed = {m: {"net, MiB": 100.0 + 10 * i} for i, m in enumerate(s_diet_steps.METHODS)}
    assert s_diet_steps._saving("net")(of_seed) == pytest.approx(100 * (1 - 100 / 110))


def test_a_stronger_feature_has_the_larger_basin_and_more_rows_learn_it():
    g = torch.Generator().manual_seed(0)
    start = tian._random_rows(2000, g)
    equal = torch.ones(tian.FEATURES, dtype=torch.float64)
    favored = equal.where(torch.arange(tian.FEATURES) == 0, 0.6)
    volumes = tian.volumes(equal, start)
    assert float(volumes.max() - volumes.min()) < 0.06
    for shares in (
        tian.volumes(favored, start),
        tian.frequencies(favored, start[:300], steps=60, generator=g),
    ):
        assert shares[0] > 2 * shares[1:].max()
        assert shares.sum() > 0.8


def test_the_script_goes_on_and_names_what_is_not_finished(tmp_path):
    """With `python` replaced, so that what it would call is seen."""
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n[ "$4" != SD-T6 ]\n')
    fake.chmod(0o755)
    words = ["sh", "studies/gpu.sh", "tiny", "--data", "here"]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "PYTHON": str(fake)}, capture_output=True, text=True
    )
    called = [line.split()[3] for line in (tmp_path / "calls").read_text().splitlines()]
    assert called[:3] == ["SD-T3", "SD-T5-CIFAR-10", "SD-T6"]
    assert called[-1] == "all"
    assert "--scale tiny --processes 1 --data here" in (tmp_path / "calls").read_text()
    assert (done.returncode, done.stderr) == (1, "not finished: SD-T6\n")


def test_the_script_runs_a_study_at_scale_tiny_on_the_cpu(tmp_path):
    done = subprocess.run(
        ["sh", "studies/gpu.sh", "tiny", "--results", tmp_path / "r", "--work", tmp_path / "w"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable, "STUDIES": "NL-basins"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "NL-basins.tiny.json").exists()


def test_every_study_has_a_tiny_scale_or_says_why_not():
    assert all("tiny" in s.scales or s.missing["tiny"] for s in studies().values() if not s.commit)
