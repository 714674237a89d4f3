"""Results as tables in Jupyter: every word is escaped, and the numbers are those of the result."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

import widefield
from made_audit import audited, whole
from widefield.core.types import Part
from widefield.encoders import build_encoder
from widefield.metrics import Health
from widefield.report.tables import ResultTable, TabularResult
from widefield.train.run import Pretrained
from widefield.workflows.plan import Plan

HOSTILE = "<script>alert(1)</script>"


def data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(48) % 2
    x = (rng.integers(0, 60, (48, 16, 16, 3)) + 90 * y[:, None, None, None]).astype(np.uint8)
    return {"x": x, HOSTILE: y}


def check(html: str, *words: str) -> None:
    assert "<script>" not in html
    for word in words:
        assert word in html, word


def test_embedding_probe_classification_and_exploration() -> None:
    embedding = widefield.embed("pixels", data(), quiet=True)
    check(embedding._repr_html_(), "48 x 768 features", "&lt;script&gt;", "<td>2</td>")
    report = widefield.probe("pixels", data(), train_data=data(), quiet=True)
    check(report._repr_html_(), "&lt;script&gt;", "<th>floor: pixels %</th>", "<td>100.0</td>")
    labels = {f"row {i}": (HOSTILE if i % 2 else "dark") for i in range(12)}
    result = widefield.classify("pixels", {"x": data()["x"]}, labels=labels, quiet=True)
    check(result._repr_html_(), "48 predictions from 12 labels", "recall %", "&lt;script&gt;")
    lone = replace(result, cross_validation=None)
    check(lone._repr_html_(), "no cross-validation: fewer than two classes")
    assert "recall" not in lone._repr_html_()


def test_exploration() -> None:
    found = widefield.explore("pixels", data(), quiet=True)
    check(found._repr_html_(), "pixels on 48 images", "labels of &lt;script&gt;", "outliers")


def test_plan_run_and_audit() -> None:
    part = Part(bytes=2_500_000, place="host")
    plan = Plan(
        recipe=widefield.make_recipe(), examples=48, steps_per_epoch=3, parts={"data": part},
        host_bytes=10**9, device_bytes=10**8, epoch_seconds=2.0, notes=(HOSTILE,),
    )  # fmt: skip
    check(plan._repr_html_(), "<td>2.5</td>", "2.0 s an epoch of 3 steps", "&lt;script&gt;")
    health = Health(
        effective_rank=9.0, possible_rank=16, large_singular_values=8, feature_std=0.6,
        verdict="healthy", advice="",
    )  # fmt: skip
    run = Pretrained(
        run=Path(HOSTILE), encoder=build_encoder("resnet-tiny", seed=0), steps=6,
        images_per_second=100.0, data_wait=0.0, health=health, finished=True,
        next_command="widefield",
    )  # fmt: skip
    check(run._repr_html_(), "6 steps, 100 examples/s", "healthy", "&lt;script&gt;")
    audit = audited(digit=0.1)
    verdict = audit.tasks["digit"].verdict
    check(audit._repr_html_(), f"<td>digit</td><td>{verdict}</td>")


@pytest.mark.parametrize("cells", [[["a & b", "1"]], []])
def test_a_table_has_a_row_for_each_list(cells: list[list[str]]) -> None:
    html = ResultTable(title="t", columns=["x", "y"], rows=cells, lines=["l"]).html()
    assert html.count("<tr>") == 1 + len(cells)
    assert html.endswith("<p>l</p>")


@pytest.mark.parametrize(
    "name",
    ["audits.result.Audit", "train.run.Pretrained"]
    + [f"workflows.{name}" for name in ("demo.Demo", "embed.Embedding", "planned.Plan")]
    + [f"workflows.{name}" for name in ("recover.Recovery", "search.Nearest")]
    + ["workflows.probe_report.ProbeReport", "workflows.classify_result.Classification"]
    + ["workflows.explore_result.Exploration"],
)
def test_the_text_of_a_result_is_its_tables(name: str) -> None:
    """The fields of a result hold arrays, weights and pictures."""
    module, _, result = name.rpartition(".")
    kind = getattr(import_module(f"widefield.{module}"), result)
    assert kind.__repr__ is TabularResult.__repr__
    assert kind._repr_html_ is TabularResult._repr_html_


def test_text_and_notebook_show_the_same() -> None:
    audit = whole(HOSTILE)
    text, html = repr(audit), audit._repr_html_()
    assert "<script>" not in html
    for table in audit.tables():
        cells = [cell for row in (table.columns, *table.rows, table.lines) for cell in row]
        assert cells
        for cell in cells:
            assert cell in text
            assert escape(cell) in html
