"""The ratio benches at a size of seconds, and what their commands refuse and write."""

import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import scale
from ratios import (
    catch_up,
    compiled,
    data,
    decoder,
    head,
    lightly_loop,
    probe,
    readout,
    step,
    views,
)
from ratios.timing import steady_ratio, turn_by_turn
from widefield.methods import METHODS
from widefield.metrics import health, singular_values
from widefield.train import model as train_model

ANY = {"tolerance": math.inf}
"""So few and small rounds are never steady."""


def test_every_method_is_timed_beside_the_bare_encoder() -> None:
    found = step.bench(encoder="resnet-tiny", batch_size=8, image_size=16, rows=40, rounds=2, **ANY)
    assert found["ratios"].keys() == {f"{name}/bare" for name in (*METHODS, "byol-both-directions")}
    assert all(ratio > 0 for ratio in found["ratios"].values())
    assert found["values"]["bare_seconds"] > 0
    assert found["values"]["rows"] == 40


def test_some_methods_alone_are_timed_under_views_that_learn() -> None:
    settings: dict[str, Any] = {"encoder": "resnet-tiny", "image_size": 16, "rows": 16}
    pair = ["simclr", "byol"]
    found = step.bench(**settings, batch_size=8, rounds=2, methods=pair, views="viewmaker", **ANY)
    assert list(found["ratios"]) == ["simclr/bare", "byol/bare"]
    with pytest.raises(ValueError, match="takes one view of each"):
        step.bench(**settings, batch_size=8, methods=["s-diet"], views="random-mask")


def test_compiled_steps_are_timed_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a backend that needs no C++ compiler."""
    monkeypatch.setattr(train_model, "BACKEND", "aot_eager")
    monkeypatch.setenv("CXX", "sh")
    small = {"encoder": "resnet-tiny", "batch_size": 8, "image_size": 16, "rows": 16}
    found = compiled.bench(**small, rounds=2, methods=["s-diet"], **ANY)
    assert list(found["ratios"]) == ["s-diet_default/none"]
    assert found["values"]["s-diet_default_compile_seconds"] > 0
    with pytest.raises(ValueError, match="trains on a CPU"):
        compiled.bench(**small, modes=["reduce-overhead"])


def test_device_memory_does_not_grow_with_the_examples_and_the_dense_head_does() -> None:
    found = head.bench(
        encoder="resnet-tiny", batch_size=8, image_size=16, dim=4, rounds=2, sizes=(100, 10_000)
    )
    ratios = ("step@1e4/step@1e2", "disk/host", "bytes@1e4/bytes@1e2", "store/memmap")
    assert tuple(found["ratios"]) == ratios
    assert found["ratios"]["bytes@1e4/bytes@1e2"] == 1
    assert all(ratio > 0 for ratio in found["ratios"].values())
    small, large = found["table"]
    assert large["disk_bytes"] == small["disk_bytes"]
    assert large["diet_bytes"] > 2 * small["diet_bytes"]
    assert found["values"]["host_bytes"] == small["disk_bytes"] + 3 * 4 * 4 * 100


def test_catching_up_is_timed_beside_a_loop_over_its_terms() -> None:
    found = catch_up.bench(batch_size=8, dim=4, rounds=2, missed=(1, 30), **ANY)
    assert list(found["ratios"]) == ["loop/merged@1", "loop/merged@30"]
    assert min(found["ratios"].values()) > 0
    optimizer, state = catch_up._rows(8, 4, 30, torch.device("cpu"))
    ours, loop = optimizer.catch_up(state), catch_up._by_term(optimizer, state)
    for name in ("row", "m", "v", "last"):
        torch.testing.assert_close(getattr(ours, name), getattr(loop, name))


def test_speeds_of_views_are_compared_on_the_same_images() -> None:
    result = views.bench(batch_size=8, image_size=16, rounds=2, **ANY)
    torchvision = {"widefield/torchvision", "widefield/torchvision_pil"}
    assert torchvision <= set(result["ratios"]) <= torchvision | {"widefield/kornia"}
    assert min(result["ratios"].values()) > 0
    values = result["values"]
    assert values["widefield_images_per_second"] > 0
    assert (values["batch_size"], values["image_size"]) == (8, 16)


def test_wide_features_are_timed_beside_pooled_ones() -> None:
    found = readout.bench(examples=600, embedded=8, image_size=16, rounds=2, **ANY)
    assert list(found["ratios"]) == ["wide/pooled", "wide/pooled, from files"]
    assert min(found["ratios"].values()) > 0
    values = found["values"]
    assert values["fit_seconds"] > 0
    assert (values["dim"], values["examples"]) == (512, 600)


def test_steps_are_timed_beside_the_loop_of_lightly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in has its names, and as views two gray images."""

    def transform(size: int, **settings: Any) -> Callable[[Any], list[torch.Tensor]]:
        assert settings == {"gaussian_blur": 0.0, "normalize": None}
        return lambda image: [torch.full((3, size, size), 0.5)] * 2

    for name, value in {
        "loss.NTXentLoss": lambda: lambda z0, z1: (z0 - z1).square().mean(),
        "models.modules.SimCLRProjectionHead": lambda *widths: torch.nn.Linear(widths[0], 2),
        "transforms.SimCLRTransform": transform,
    }.items():
        module, _, attribute = f"lightly.{name}".rpartition(".")
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{attribute: value}))
    found = lightly_loop.bench(batch_size=8, image_size=16, rows=16, rounds=2, **ANY)
    assert tuple(found["ratios"]) == tuple(f"{name}/lightly" for name in lightly_loop.METHODS)
    assert all(ratio > 0 for ratio in found["ratios"].values())
    assert found["values"]["lightly_views_seconds"] < found["values"]["lightly_seconds"]


def test_kornia_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "kornia" else find(name)
    )
    ratios = views.bench(batch_size=2, image_size=8, rounds=2, **ANY)["ratios"]
    assert list(ratios) == ["widefield/torchvision", "widefield/torchvision_pil"]


def test_both_probes_solve_the_same_problem() -> None:
    found = probe.bench(examples=600, dim=64, tasks=2, seed=1)
    ours, theirs = (found["values"][f"{name} accuracy"] for name in ("widefield", "sklearn"))
    assert abs(ours - theirs) < 0.03  # their splits differ, so their strengths may
    seconds = found["values"]["sklearn seconds"] / found["values"]["widefield seconds"]
    assert found["ratios"] == {"sklearn/widefield": seconds}


def test_made_up_features_resemble_an_encoders() -> None:
    h, labels = probe.made_up_features(1000, 128, 2, seed=0)
    assert h.shape == (1000, 128)
    assert h.min() >= 0
    assert set(labels) == {"task 0", "task 1"}
    assert health(h).verdict == "healthy"
    sigma = singular_values(h)
    assert sigma[0] > 5 * sigma[40]


class Clock:
    """A clock that contestants set forward by what their rounds are to take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def contestant(self, seconds: Iterator[float]) -> Callable[[], None]:
        def run() -> None:
            self.now += next(seconds)

        return run


def timed(rounds: list[float]) -> dict[str, list[float]]:
    """Time a contestant that takes `rounds` seconds after the warm-up, beside one of 1 second."""
    clock = Clock()
    contestants = {
        "bare": clock.contestant(cycle([1.0])),
        "method": clock.contestant(iter([9.0, 9.0, 9.0, *rounds])),
    }
    return turn_by_turn(contestants, len(rounds), torch.device("cpu"), clock)


def test_the_ratio_is_the_median_over_the_rounds_after_the_warm_up() -> None:
    seconds = timed([2.0, 2.0, 7.0, 2.0, 2.0, 2.0])
    assert seconds["bare"] == pytest.approx([1.0] * 6)
    assert steady_ratio("method/bare", seconds["method"], seconds["bare"], 0.05) == pytest.approx(2)


@pytest.mark.parametrize("late", [2.11, 1.89])
def test_a_ratio_whose_halves_differ_by_more_than_the_tolerance_is_refused(late: float) -> None:
    seconds = timed([2.0] * 3 + [late] * 3)
    with pytest.raises(ValueError, match=rf"method/bare is 2 in the first half .* {late} .* 5%"):
        steady_ratio("method/bare", seconds["method"], seconds["bare"], 0.05)
    within = timed([2.0] * 3 + [1 + late / 2] * 3)
    steady_ratio("method/bare", within["method"], within["bare"], 0.05)


def test_one_round_has_no_halves() -> None:
    with pytest.raises(ValueError, match="give 2 rounds or more"):
        steady_ratio("method/bare", [2.0], [1.0], 0.05)


def call(monkeypatch: pytest.MonkeyPatch, *words: str, bench: Any = step.bench) -> None:
    monkeypatch.setattr(sys, "argv", ["step.py", *words])
    import_module("ratios.command").command(bench, step.split)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "byoll"), "did you mean 'byol'"),
        (("--batch-size", "0"), "must be 1 or more, got 0"),
        (("--rows", "few"), "must be 1 or more, got few"),
        (("--round", "9", "--size", "3"), "unrecognized arguments: --size 3"),
    ],
)
def test_bad_input_ends_in_one_line_and_exit_code_2(
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, *words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


RESULT = {
    "ratios": {"a/bare": 1.5, "b/bare": 2.0},
    "values": {"bare_seconds": 1.0, "a_seconds": 1.5, "b_seconds": 2.0, "rows": 10},
}


def test_each_method_gets_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, folder = tmp_path / "all.json", tmp_path / "steps"
    call(monkeypatch, "--json", str(whole), "--into", str(folder), bench=lambda: dict(RESULT))
    assert "a/bare" in capsys.readouterr().out
    kept = json.loads(whole.read_text())
    machine = kept.pop("machine")
    assert kept == RESULT
    assert machine.keys() >= {"cpu", "python", "torch"}
    parts = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("a", "b")}
    assert parts["a"] == {
        "ratios": {"a/bare": 1.5},
        "values": {"bare_seconds": 1.0, "a_seconds": 1.5, "rows": 10},
        "machine": machine,
    }
    assert parts["a"]["values"] | parts["b"]["values"] == RESULT["values"]


def test_a_refused_measurement_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsteady() -> dict[str, Any]:
        seconds = timed([2.0] * 3 + [3.0] * 3)
        steady_ratio("method/bare", seconds["method"], seconds["bare"], 0.05)
        return dict(RESULT)

    with pytest.raises(SystemExit) as ended:
        call(monkeypatch, "--into", str(tmp_path / "steps"), bench=unsteady)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_examples_are_opened_in_a_process_of_their_own() -> None:
    (row,) = scale.bench(sizes=(1_000,))["rows"]
    assert row["examples"] == 1_000
    assert row["open_bytes"] >= 0 < row["manifest_bytes"]
    assert 0 < row["open_seconds"] < 60


def test_encoded_images_are_read_beside_the_bare_decoder() -> None:
    found = decoder.bench(files=4, side=64, sizes=(16, 24), rounds=2, **ANY)
    ours = ("encoded@16/decoder", "encoded@24/decoder", "encoded@24/torchvision")
    assert tuple(found["ratios"]) == ours
    assert all(ratio > 0 for ratio in found["ratios"].values())
    assert found["values"]["threads"] >= 1


def test_opening_data_is_measured_beside_the_bare_calls() -> None:
    found = data.bench(files=20, examples=600, image_size=16, rounds=2, **ANY)
    assert found["ratios"].keys() == {"index/scandir", "cache/memmap"}
    assert all(ratio > 0 for ratio in found["ratios"].values())
