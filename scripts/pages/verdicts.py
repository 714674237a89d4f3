"""The vocabulary of verdicts with the rule of each: docs/glossary.md."""

from typing import get_args

from pages.format import table
from widefield.evaluation.paired import ScoreVerdict
from widefield.evaluation.verdicts import (
    CONSISTENCY_DECREASE,
    EASY,
    LEARNED,
    MAX_DECREASE,
    MIN_GAP,
    MIN_INCREASE,
    RANK_SHARE,
    WEAKENED,
    ComparisonVerdict,
    ShareVerdict,
)
from widefield.metrics import FeatureState

BEHIND = "not learned by its share, or below the floor (audit)"
CLOSE = "ceiling not significantly above the floor, or by less than 5 points (audit)"
INITIAL, UNTRAINED = "with the initial encoder", "with the encoder untrained"
STATE, SCORE, SHARE = "state of features", "one score", "share learned (audit)"
WITH = f"{INITIAL}, with labels"
WITHOUT = "with the initial or another encoder, without labels"


def verdicts() -> str:
    """Return every verdict, what it judges, and its rule."""
    gap = f"{100 * MIN_GAP:g} points or more"
    point, fall = f"{100 * MAX_DECREASE:g} point", f"{100 * CONSISTENCY_DECREASE:g} points"
    rules = [
        (STATE, "healthy", "neither of the two below"),
        (
            STATE,
            "collapsing",
            "feature std below 0.05, or less than 2 % of the variance outside the two strongest "
            "directions, or an effective rank below 8",
        ),
        (
            STATE,
            "collapsed",
            "feature std below 0.01, or less than 1 % of the variance outside the two strongest "
            "directions",
        ),
        (SCORE, "higher", "the 95 % interval of the paired difference lies above 0"),
        (SCORE, "lower", "it lies below 0"),
        (SCORE, "no significant difference", "it holds 0"),
        (
            WITH,
            "worse",
            f"a linear-probe or kNN accuracy fell by more than {point}, or the one-sided 95 % "
            "interval of its difference lies below 0",
        ),
        (WITH, "better", "else, if one is higher"),
        (
            WITH,
            "inconclusive",
            f"else, if a one-sided 95 % interval holds a fall by more than {point}: more labels "
            "needed",
        ),
        (WITH, "no significant difference", "else"),
        (
            WITHOUT,
            "worse",
            f"the features are collapsing or collapsed, and were healthy before; "
            f"or the effective rank is below {RANK_SHARE:g} of what it was, "
            f"or neighbor consistency is significantly lower by more than {fall}, or all planted "
            "features are lower",
        ),
        (
            WITHOUT,
            "better",
            "else, if neighbor consistency and a planted feature are higher, and none is lower",
        ),
        (WITHOUT, "no significant difference", "else"),
        (
            UNTRAINED,
            "worse",
            "the linear-probe accuracy of a task is lower; or the features are collapsing or "
            "collapsed, untrained ones are healthy, and the next rule does not hold",
        ),
        (
            UNTRAINED,
            "better",
            "the mean of neighbor consistency, rotation prediction and quadrant retrieval is "
            f"higher, by more than {100 * MIN_INCREASE:g} points",
        ),
        (UNTRAINED, "inconclusive", "else, if this mean is lower: labels needed"),
        (UNTRAINED, "no significant difference", "else"),
        (SHARE, "learned", f"the 95 % interval of the share lies at {LEARNED:g} or above"),
        (SHARE, "weakened", f"it lies at {WEAKENED:g} or above, and below {LEARNED:g}"),
        (SHARE, "not learned", f"it lies below {WEAKENED:g}"),
        (SHARE, "unclear", "it holds several of these"),
        (
            BEHIND,
            "hidden",
            f"the best stage on its best grid is significantly higher by {gap}, and at "
            f"{LEARNED:g} or more of the way from the commonest class to the best known accuracy",
        ),
        (
            BEHIND,
            "lost",
            f"else, if the best stage is significantly lower than that of the untrained network, "
            f"by {gap}, and below {WEAKENED:g} of the way",
        ),
        (CLOSE, "weakened", f"significantly below the floor, by {gap}, at {WEAKENED:g} of the way"),
        (CLOSE, "not learned", f"the same, below {WEAKENED:g} of the way"),
        (CLOSE, "easy", f"else, if the floor is at {100 * EASY:g} % or more"),
        (CLOSE, "not separable", "else"),
    ]
    shares = {word for part in get_args(ShareVerdict) for word in get_args(part) or (part,)}
    known = {*get_args(FeatureState), *get_args(ScoreVerdict), *get_args(ComparisonVerdict)}
    assert {word for _, word, _ in rules} == known | shares, "every verdict has its rule"
    return table(["judged", "verdict", "rule"], [list(rule) for rule in rules])
