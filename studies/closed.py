"""Studies of closed questions: their results and tables stay, their code is in the commit named."""

from pathlib import Path

import yaml

from studies.study import Finding, Study

_FILE = Path(__file__).with_suffix(".yaml")


def _no_value(_: object) -> float:
    raise AssertionError("a closed study measures nothing: its verdicts are in its results")


def _closed(name: str, fields: dict[str, object]) -> Study:
    criteria, asked = fields.pop("findings", {}), fields.pop("asked", {})
    assert isinstance(criteria, dict)
    assert isinstance(asked, dict)
    findings = (
        Finding(id=k, criterion=v, at_least=asked.get(k, 0.0), value=_no_value)
        for k, v in criteria.items()
    )
    return Study(id=name, scales={}, arms={}, findings=tuple(findings), **fields)  # type: ignore[arg-type]


STUDIES = [_closed(*entry) for entry in yaml.safe_load(_FILE.read_text()).items()]
