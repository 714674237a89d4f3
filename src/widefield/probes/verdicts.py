"""The verdicts and their rules. `docs/glossary.md` has them as a table.

A score is higher or lower if the 95 % interval of its paired difference excludes 0. A decrease is
tested one-sided: a score is probably lower if its one-sided 95 % interval lies below 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from widefield.probes.explained import Explained
from widefield.probes.paired import PairedDifference

ComparisonVerdict = Literal["better", "worse", "no significant difference", "inconclusive"]
LearnedShare = Literal["learned", "weakened", "not learned"]
ShareVerdict = Literal[
    "learned", "hidden", "weakened", "lost", "not learned", "unclear", "easy", "not separable"
]
SHARE_VERDICTS: tuple[ShareVerdict, ...] = get_args(ShareVerdict)
"""All verdicts of an audit, in the order of its summary."""
NOT_LEARNED: tuple[ShareVerdict, ...] = ("hidden", "weakened", "lost", "not learned")
"""Verdicts on features of which the audit searches the cause."""

Judgement = tuple[ComparisonVerdict, str]
"""A verdict and its reason."""

# The decreases and the share of the rank were chosen by hand.
MAX_DECREASE = 0.01
"""Largest decrease of a score with labels, unless it is significant."""
CONSISTENCY_DECREASE = 0.05
"""Neighbor consistency has to decrease significantly by more than this for `worse`."""
RANK_SHARE = 0.5
"""An effective rank below this share of the baseline's is `worse`."""
MIN_KEPT = 0.5
"""Initial features of which less than this share of the variance is explained were lost."""
# Chosen on other runs than those that test the rule: docs/notebook.md, "The verdict 'better than
# untrained'".
MIN_INCREASE = 0.002
"""A smaller increase of the mean label-free score occurs with learning rates close to 0."""
ONE_SIDED = 1.645 / 1.960
"""Half width of a one-sided 95 % interval over that of a two-sided one, for a normal."""
# LEARNED, WEAKENED, EASY and MIN_GAP were chosen by hand before the studies calibration and
# calibration-vit (docs/studies.md), which measure how often the verdicts are right with them.
LEARNED = 0.75
"""Smallest share of a learned feature."""
WEAKENED = 0.25
"""Smallest share of a weakened feature; below it a feature is not learned."""
EASY = 0.98
"""A feature that a floor predicts at this accuracy is easy."""
MIN_GAP = 0.05
"""Smallest distance of floor and ceiling that are separable; it has to be significant too."""


def probably_lower(score: PairedDifference) -> bool:
    """Return whether the one-sided 95 % interval of the difference lies below 0."""
    return score.difference + ONE_SIDED * (score.high - score.difference) < 0


def may_be_lower(score: PairedDifference) -> bool:
    """Return whether the one-sided 95 % interval contains a decrease by more than a point."""
    return score.difference - ONE_SIDED * (score.difference - score.low) < -MAX_DECREASE


def judge_with_labels(
    linear: Mapping[str, PairedDifference], knn: Mapping[str, PairedDifference]
) -> Judgement:
    """Return the verdict by linear-probe and kNN accuracies, each task -> difference."""
    scores = {f"linear-probe accuracy ({task})": score for task, score in linear.items()}
    scores |= {f"kNN accuracy ({task})": score for task, score in knn.items()}
    for name, s in scores.items():
        if s.difference < -MAX_DECREASE or probably_lower(s):
            suffix = "" if probably_lower(s) else ", which may be chance"
            return "worse", f"{name} decreased by {-100 * s.difference:.1f} points{suffix}"
    for name, s in scores.items():
        if s.verdict == "higher":
            return "better", f"{name} is significantly higher, and no accuracy is probably lower"
    if any(may_be_lower(s) for s in scores.values()):
        return (
            "inconclusive",
            "no score with labels is significantly higher, and one may be lower by more than a "
            "point; more labels needed",
        )
    return (
        "no significant difference",
        "no score with labels is significantly higher, and none is lower by more than a point",
    )


def judge_without_labels(
    consistency: PairedDifference,
    planted: Mapping[str, PairedDifference],
    *,
    rank: tuple[float, float],
    collapsed: bool,
    kept: Explained | None = None,
) -> Judgement:
    """Return the verdict of a comparison with the initial encoder, without labels.

    It depends on neighbor consistency under augmentation, the linear-probe accuracy of each planted
    feature, the effective rank before and after, whether the features collapsed and those of the
    initial encoder did not, and how much of the initial features is explained.
    """
    if collapsed:
        return "worse", "the features collapsed"
    if rank[1] < RANK_SHARE * rank[0]:
        return "worse", "the effective rank is less than half"
    if consistency.high < -CONSISTENCY_DECREASE:
        return "worse", "neighbor consistency under augmentation is significantly lower"
    lower = [name for name, score in planted.items() if score.verdict == "lower"]
    if planted and len(lower) == len(planted):
        return "worse", f"all planted features are significantly lower ({', '.join(lower)})"
    if kept is not None and kept.r2 < MIN_KEPT and (lower or consistency.verdict == "lower"):
        score = lower[0] if lower else "neighbor consistency"
        return "worse", f"initial features were lost (R^2 {kept.r2:.2f}), and {score} is lower"
    # Consistency alone increases with almost any training, even without a gain in accuracy.
    if (
        consistency.verdict == "higher"
        and not lower
        and any(score.verdict == "higher" for score in planted.values())
    ):
        return "better", "neighbor consistency and a planted feature are significantly higher"
    return "no significant difference", "no score is much lower; labels would show what was gained"


def judge_against_untrained(mean: PairedDifference, *, collapsed: bool) -> Judgement:
    """Return the verdict of a comparison with the untrained encoder, by the mean label-free score.

    Features that collapsed may still be better than untrained ones.
    """
    if mean.verdict == "higher" and mean.difference > MIN_INCREASE:
        return "better", "the mean of the label-free scores is significantly higher"
    if collapsed:
        return "worse", "the features collapsed"
    if mean.verdict == "lower":
        return "inconclusive", "the label-free scores are lower; labels needed"
    return "no significant difference", "the label-free scores are not significantly higher"


def overruled_by_labels(
    without_labels: Judgement, linear: Mapping[str, PairedDifference]
) -> Judgement:
    """Return `worse` if the linear-probe accuracy of a task is significantly lower."""
    lower = [task for task, score in linear.items() if score.verdict == "lower"]
    if not lower:
        return without_labels
    return "worse", f"linear-probe accuracy ({', '.join(lower)}) is significantly lower"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """How well other features of an encoder predict a feature than those that are audited."""

    predictable: float
    """(accuracy - commonest class) / (best known accuracy - commonest class), where the best known
    accuracy is that of the floor or of the ceiling."""
    over_pooled: PairedDifference
    """Difference from the features audited."""
    over_floor: PairedDifference
    """Difference from what needs no training: for a stage, from the best stage of the untrained
    network; for the wide features, from the floor. Both of the latter have directions of the input,
    so that only what is above the floor is of the encoder."""


def judge_feature(
    share: tuple[float, float, float] | None,
    *,
    over_floor: PairedDifference,
    predictable: float,
    stage: Evidence | None,
    wide: Evidence | None = None,
) -> ShareVerdict:
    """Return the verdict on a feature.

    The learned `share` has its interval, and is None if floor and ceiling are not separable.
    `over_floor` is the difference from the floor to the features audited, and `predictable` that of
    `Evidence`. Evidence of the best stage, on its best grid, is None for an encoder without stages,
    and that of the wide readout where it was not measured.
    """
    if share is not None and name_share(share[1]) == "learned":
        return "learned"
    below_floor = over_floor.verdict == "lower" and over_floor.difference <= -MIN_GAP
    is_behind = below_floor if share is None else share[0] < LEARNED
    if is_behind and stage is not None and _is_hidden(stage):
        return "hidden"
    is_open = is_behind or share is None
    if is_open and wide is not None and wide.over_floor.verdict == "higher" and _is_hidden(wide):
        return "hidden"
    if is_behind and stage is not None:
        kept = stage.over_floor
        is_lower = kept.verdict == "lower" and kept.difference <= -MIN_GAP
        if is_lower and stage.predictable < WEAKENED:
            return "lost"
    if share is not None:
        return judge_share(share[1], share[2])
    if below_floor:
        return "weakened" if predictable >= WEAKENED else "not learned"
    return "easy" if over_floor.before >= EASY else "not separable"


def _is_hidden(found: Evidence) -> bool:
    """Return whether a feature is found that the features audited do not predict as well."""
    change = found.over_pooled
    is_better = change.verdict == "higher" and change.difference >= MIN_GAP
    return is_better and found.predictable >= LEARNED


def judge_share(low: float, high: float) -> ShareVerdict:
    """Return the verdict on a learned share with a 95 % interval."""
    return name_share(low) if name_share(low) == name_share(high) else "unclear"


def name_share(learned: float) -> LearnedShare:
    """Return the verdict on a learned share in [0, 1] without an interval."""
    if learned >= LEARNED:
        return "learned"
    return "weakened" if learned >= WEAKENED else "not learned"
