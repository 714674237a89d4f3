"""The vocabulary of verdicts with the rule of each: docs/glossary.md."""

from pathlib import Path
from typing import get_args

import yaml

from pages.format import table
from widefield.metrics import FeatureState
from widefield.probes import verdicts as rules
from widefield.probes.paired import ScoreVerdict

RULES = Path(__file__).with_name("verdicts.yaml")
IN_PERCENT = ("MIN_GAP", "MAX_DECREASE", "CONSISTENCY_DECREASE", "MIN_INCREASE", "EASY")
SHARES = ("RANK_SHARE", "MIN_KEPT", "LEARNED", "WEAKENED")


def verdicts() -> str:
    """Return every verdict, what it judges, and its rule."""
    numbers = {name: f"{100 * getattr(rules, name):g}" for name in IN_PERCENT}
    numbers |= {name: f"{getattr(rules, name):g}" for name in SHARES}
    lines = [
        [judged, verdict, rule.format_map(numbers)]
        for judged, its in yaml.safe_load(RULES.read_text()).items()
        for verdict, rule in its.items()
    ]
    shares = {word for part in get_args(rules.ShareVerdict) for word in get_args(part) or (part,)}
    known = {*get_args(FeatureState), *get_args(ScoreVerdict), *get_args(rules.ComparisonVerdict)}
    assert {word for _, word, _ in lines} == known | shares, "every verdict has its rule"
    return table(["judged", "verdict", "rule"], lines)
