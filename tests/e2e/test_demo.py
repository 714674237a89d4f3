"""The tour, made small: what it writes, and what it says."""

from pathlib import Path

import pytest

from widefield.workflows import demo as module
from widefield.workflows.demo import demo

SMALL = {"epochs": 1, "limit": 160, "batch_size": 32, "encoder": "resnet-tiny"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "S_DIET", {**module.S_DIET, **SMALL})
    monkeypatch.setattr(module, "SUPERVISED", {**module.SUPERVISED, **SMALL})


@pytest.mark.usefixtures("small")
def test_demo_leaves_a_report_and_a_table(tmp_path: Path) -> None:
    done = demo(out=tmp_path / "tour", quiet=True)
    assert done.to_json()["tasks"].keys() == {"class", "digits"}
    for row in done.table.values():
        assert tuple(row) == module.COLUMNS
    page = done.report.read_text()
    assert done.report == tmp_path / "tour" / "report.html"
    assert "S-DIET" in page
    assert "<script" not in page
    with pytest.raises(ValueError, match="is not empty: delete it"):
        demo(out=tmp_path / "tour", quiet=True)


@pytest.mark.usefixtures("small")
def test_the_verdict_counts_only_what_beats_both_floors(tmp_path: Path) -> None:
    table = demo(out=tmp_path / "tour", quiet=True).table
    said = module._verdict(table)
    for task, row in table.items():
        floor = max(row["pixels"].high, row["random encoder"].high)
        learned = row["S-DIET"].low > floor
        assert (task in said.split(";")[0]) == learned
