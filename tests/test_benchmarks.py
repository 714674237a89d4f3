"""Every script under benchmarks/ imports and prints its help."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", [path.stem for path in SCRIPTS if path.stem != "study"])
def test_help_is_printed(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(name).main()
    assert ended.value.code == 0
    assert f"usage: {name}.py" in capsys.readouterr().out


def test_splitting_steps_loses_nothing() -> None:
    split = import_module("split_steps").split
    values = {"bare_seconds": 1.0, "a_seconds": 1.5, "b_seconds": 2.0, "rows": 10}
    result = {"ratios": {"a/bare": 1.5, "b/bare": 2.0}, "values": values, "machine": {"cpu": "x"}}
    parts = split(result)
    assert parts["a"] == {
        "ratios": {"a/bare": 1.5},
        "values": {"bare_seconds": 1.0, "a_seconds": 1.5, "rows": 10},
        "machine": {"cpu": "x"},
    }
    assert parts["a"]["values"] | parts["b"]["values"] == values
