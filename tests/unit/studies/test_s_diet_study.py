"""The measures and criteria of S-DIET's and Tian's studies, and the script that runs all."""

import os
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from studies import s_diet, s_diet_steps, tian
from studies.registry import studies
from studies.s_diet import T1, T3, above_best
from studies.study import TINY, Arm
from studies.trained import run_settings
from studies.verdict import judge

ROOT = Path(__file__).parents[3]
SMALL = replace(s_diet_steps.CASES["CIFAR R18"], encoder="resnet-tiny", size=8, examples=40)


def runs(**arms):
    """Return runs of three seeds: arm -> measures, with a little noise between the seeds."""
    found = {}
    for arm, measured in arms.items():
        for seed in range(3):
            scores = {k: v + 0.01 * seed for k, v in measured.items()}
            found[f"{arm} | seed {seed}"] = {"measured": scores, "validation": scores}
    return found


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
        "class, %": 18.0,
        "before minus after, %": 16.0 - after,
        "singular values above a tenth": 30.0,
    }
    others = {"class, %": 14.0, "singular values above a tenth": 2.0}
    arms = dict.fromkeys(T3.arms, others) | {
        "normalized": normalized,
        "untrained": {"class, %": 8.0},
    }
    found = judge(T3, runs(**arms))["findings"]
    assert found["SD-T4 R18"]["verdict"] == expected
    assert {found[name]["verdict"] for name in ("SD-T3", "SD-F1c", "SD-5.1.2")} == {"holds"}


def test_a_control_that_learned_neither_decides_nothing_on_the_stacked_digit():
    low, high = ({"digit kept, %": x, "digit masked, %": x} for x in (31.0, 90.0))
    for control, verdict in ((31.0, "cannot tell"), (40.0, "holds")):  # the digit alone
        arms = {
            arm: high if "not" not in arm else low | {"digit kept, %": control} for arm in T1.arms
        }
        found = judge(T1, runs(**arms | {"untrained": low}))["findings"]
        assert {each["verdict"] for each in found.values()} == {verdict}


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
    rate, favored = 0.1 * equal, equal.where(torch.arange(tian.FEATURES) == 0, 0.6)
    volumes = tian.volumes(equal, rate, start)
    assert float(volumes.max() - volumes.min()) < 0.06
    for shares in (
        tian.volumes(favored, rate, start),
        tian.frequencies(favored, rate, start[:300], steps=60, generator=g),
    ):
        assert shares[0] > 2 * shares[1:].max()
        assert shares.sum() > 0.8


def test_what_two_numbers_owe_to_a_third_is_no_correlation_given_it():
    scale = torch.linspace(0.6, 1.0, tian.FEATURES)
    noise = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]) / 10
    other = torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, 1.0]) / 10

    def given(volume, found):
        columns = zip(scale, volume, found, strict=True)
        seed = {
            f"feature {i + 1} by scale": dict(
                zip((tian.SCALE, tian.VOLUME, tian.FOUND), map(float, numbers), strict=True)
            )
            for i, numbers in enumerate(columns)
        }
        return tian._given(tian.SCALE)(seed)

    assert given(scale + noise, scale + noise) == pytest.approx(1, abs=1e-3)
    assert abs(given(scale + noise, scale + other)) < 0.3


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


@pytest.mark.filterwarnings("ignore:'studies.__main__' found in sys.modules:RuntimeWarning")
def test_the_script_runs_a_study_at_scale_tiny_on_the_cpu(tmp_path, monkeypatch):
    """What it calls `python` with is run in this process."""
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    fake.chmod(0o755)
    subprocess.run(
        ["sh", "studies/gpu.sh", "tiny", "--results", tmp_path / "r", "--work", tmp_path / "w"],
        cwd=ROOT,
        env={**os.environ, "PYTHON": str(fake), "STUDIES": "NL-basins"},
        check=True,
    )
    dash, module, *words = (tmp_path / "calls").read_text().split()
    assert (dash, module) == ("-m", "studies")
    monkeypatch.setattr(sys, "argv", ["studies", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0
    assert (tmp_path / "r" / "NL-basins.tiny.json").exists()


def test_a_call_in_a_process_of_its_own_gives_its_result():
    process = s_diet_steps._in_a_process(os.getpid)
    assert process not in (0, os.getpid())


def test_every_study_has_a_tiny_scale_or_says_why_not():
    assert all("tiny" in s.scales or s.missing["tiny"] for s in studies().values() if not s.commit)
