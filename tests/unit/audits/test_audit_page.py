"""The page of an audit, and what is read from its JSON."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from made_audit import audited, task, whole
from widefield.audits.page import audit_page, summary
from widefield.audits.result import read_findings
from widefield.metrics import DIAGNOSTICS

DIGIT = asdict(task("digit", 0.2))
HOSTILE = "<script>alert('x')</script>\"&'"


def test_the_summary_groups_tasks_by_their_verdict() -> None:
    audit = audited(letters=0.9, shape=0.5, class_=0.1, digit=0.2, light=None)
    assert summary(audit) == (
        "Learned: letters; weakened: shape; not learned: class_, digit; not separable: light."
    )


def test_the_summary_names_the_encoders_that_it_compares() -> None:
    audit = audited(letters=0.9, digit=0.2)
    audit = replace(audit, compared={"other": {"digit": task("digit", 0.8)}})
    assert summary(audit) == "random, learned: letters; not learned: digit. other, learned: digit."


def test_findings_are_read_from_the_json_of_an_audit(tmp_path: Path) -> None:
    audit = whole()
    (tmp_path / "audit.json").write_text(json.dumps(audit.to_json()))
    found = read_findings(tmp_path / "audit.json")
    assert found == [task.line() for task in audit.tasks.values()]


def test_every_part_of_an_audit_is_on_its_page() -> None:
    text = audit_page(whole())
    titles = re.findall(r"<h3>(.*?)</h3>", text)
    assert titles == [
        "Where is plain?",
        "Where is unclear?",
        "When was it learned?",
        "How easy must a planted feature be?",
        "Do plants hide the images?",
        "How many directions do the features use?",
        "How often are neurons active?",
        "Which images have similar features?",
        "A map of the images",
    ]
    assert text.count("<img ") == 4 + 4  # a row of neighbors, the map
    assert "<b>12.3</b>" in text
    assert DIAGNOSTICS["effective_rank"].meaning in text
    assert "<b>not defined</b>" in text
    assert "linear CKA with other" in text
    assert "31 %" in text
    assert (
        len(re.findall(r"<h3>", audit_page(audited(shape=0.5)))) == 3
    )  # its stages, spectrum, neighbors


def test_what_cannot_be_told_at_all_draws_no_empty_figure() -> None:
    audit, unclear = whole(), task("unclear", None)
    plants = {name: replace(plant, grades=(unclear,) * 5) for name, plant in audit.plants.items()}
    text = audit_page(replace(audit, plants=plants, checkpoints={1: {"unclear": unclear}}))
    assert "How easy must" not in text
    assert "When was it learned" not in text
    assert "Do plants hide the images?" in text


def test_every_string_of_an_audit_is_escaped() -> None:
    text = audit_page(whole(HOSTILE))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 20


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "holds no JSON"),
        ("[1, 2]", "holds no audit"),
        ('{"encoder": "resnet18", "tasks": {}}', "holds no audit"),
        ('{"format": 5, "encoder": "resnet18"}', "damaged"),
        (json.dumps({"format": 5, "tasks": {"digit": {**DIGIT, "learned": "x"}}}), "damaged"),
        (json.dumps({"format": 5, "tasks": {"digit": {**DIGIT, "color": 1}}}), "damaged"),
    ],
    ids=["empty", "list", "unmarked", "short", "broken", "unknown"],
)
def test_a_file_that_is_no_audit_is_refused_in_one_line(
    tmp_path: Path, content: str, reason: str
) -> None:
    (tmp_path / "audit.json").write_text(content)
    with pytest.raises(ValueError, match=reason) as refused:
        read_findings(tmp_path / "audit.json")
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="cannot read"):
        read_findings(tmp_path / "nothing.json")
