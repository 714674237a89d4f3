import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from widefield.audits.verdict import TaskAudit
from widefield.audits.verdict import audit_task as judged
from widefield.probes.outcome import Outcome
from widefield.probes.paired import wilson
from widefield.probes.verdicts import EASY, LEARNED, MIN_GAP, WEAKENED, name_share


def probed(accuracy: float, n: int = 1000, seed: int = 0) -> Outcome:
    hits = np.arange(n) < round(accuracy * n)
    values = np.random.default_rng(seed).permutation(hits)
    return Outcome(values=values, knn=accuracy, validation_error=1 - accuracy)


def verdict(encoder: float, pixels: float, random: float, ceiling: float, n: int = 1000):
    floors = {"pixels": probed(pixels, n, 1), "random": probed(random, n, 2)}
    return judged("t", probed(encoder, n, 3), floors, probed(ceiling, n, 4), classes=2)


def test_learned_is_the_share_of_the_way_from_the_better_floor() -> None:
    found = verdict(0.7, 0.3, 0.4, 0.9)
    assert found.floor == pytest.approx(0.4)
    assert found.floor_of == "random"
    assert found.learned == pytest.approx(0.6)
    assert found.verdict == "weakened"
    assert WEAKENED < found.learned_low < found.learned_high < LEARNED
    assert found.learned_low < 0.6 < found.learned_high
    assert "weakened, 60 % of the way; 70 % between an untrained encoder at 40 %" in found.line()


@pytest.mark.parametrize(
    ("accuracy", "said"),
    [
        (0.2, "20 %, below an untrained encoder at 40 %; full supervision at 90 %"),
        (0.95, "95 %, above full supervision at 90 %; an untrained encoder at 40 %"),
    ],
)
def test_what_lies_outside_the_two_is_not_between_them(accuracy: float, said: str) -> None:
    assert verdict(accuracy, 0.3, 0.4, 0.9).line().endswith(said)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_whatever_is_measured_is_judged(rates: list[float]) -> None:
    found = verdict(*rates, n=200)
    assert found.floor == max(round(rates[1] * 200), round(rates[2] * 200)) / 200
    assert found.low <= found.accuracy <= found.high
    if found.learned is None:
        assert found.ceiling - found.floor < 0.2
        if found.verdict in ("weakened", "not learned"):
            assert found.floor - found.accuracy >= MIN_GAP
        else:
            assert found.verdict == ("easy" if found.floor >= EASY else "not separable")
    else:
        assert 0 <= found.learned_low <= found.learned <= found.learned_high <= 1
        words = {name_share(found.learned_low), name_share(found.learned_high)}
        assert found.verdict == (words.pop() if len(words) == 1 else "unclear")


def test_the_interval_of_the_accuracy_is_the_binomial_one() -> None:
    found = verdict(0.7, 0.3, 0.4, 0.9)
    expected = binom.ppf([0.025, 0.975], 1000, 0.7) / 1000
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.004)


@pytest.mark.parametrize("hits", [0, 13, 25])
def test_the_interval_of_the_accuracy_is_that_of_the_probe(hits: int) -> None:
    """A bootstrap of 25 hits in 25 examples would be sure of 100 %."""
    found = verdict(hits / 25, 0.1, 0.1, 0.9, n=25)
    assert (found.low, found.high) == wilson(hits, 25)
    assert found.high - found.low > 0.1


@pytest.mark.parametrize(("n", "ceiling"), [(1000, 0.44), (60, 0.47)])
def test_a_ceiling_too_near_the_floor_tells_nothing(n: int, ceiling: float) -> None:
    found = verdict(0.41, 0.3, 0.4, ceiling, n)
    assert (found.verdict, found.learned) == ("not separable", None)
    assert "which are too close" in found.line()


def test_an_interval_that_holds_two_verdicts_is_said_to() -> None:
    few, many = (verdict(0.7, 0.1, 0.1, 0.9, n) for n in (60, 5000))
    assert few.learned > LEARNED - 0.01
    assert few.verdict == "unclear"
    assert "unclear, weakened to learned, 75 % of the way" in few.line()
    clear = verdict(0.8, 0.1, 0.1, 0.9, 5000)
    assert clear.verdict == clear.describe() == "learned"
    assert many.verdict == "unclear"  # 75 % is the threshold itself


def test_the_commonest_class_is_a_floor() -> None:
    floors = {"pixels": probed(0.3), "random": probed(0.35), "majority": probed(0.6)}
    found = judged("t", probed(0.62, seed=3), floors, probed(0.9, seed=4), classes=2)
    assert (found.floor, found.floor_of) == (0.6, "majority")
    assert found.verdict == "not learned"
    assert "between the commonest class at 60 %" in found.line()
    without = {name: result for name, result in floors.items() if name != "majority"}
    assert judged("t", probed(0.62, seed=3), without, probed(0.9, seed=4), classes=2).learned > 0.25


def test_the_thresholds_divide_learned_weakened_and_not_learned() -> None:
    assert verdict(0.9, 0.1, 0.1, 0.9).verdict == "learned"
    assert verdict(0.0, 0.1, 0.1, 0.9).learned == 0
    assert verdict(1.0, 0.1, 0.1, 0.9).learned == 1
    for edge, above, below in (
        (LEARNED, "learned", "weakened"),
        (WEAKENED, "weakened", "not learned"),
    ):
        assert (name_share(edge), name_share(edge - 1e-9)) == (above, below)


def one(accuracy: float, seed: int) -> TaskAudit:
    probe = probed(accuracy, seed=seed)
    return judged("t", probe, {"pixels": probe}, probe, classes=2)


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (0.5, 0.6, "higher"),
        (0.6, 0.5, "lower"),
        (0.5, 0.53, "no significant difference"),
        (0.53, 0.5, "no significant difference"),
        (0.5, 0.5, "no significant difference"),
    ],
)
def test_differences_where_other_examples_are_correct(
    before: float, after: float, word: str
) -> None:
    """Of 1,000 examples each, drawn apart: 1.96 sqrt(2 x 0.25 / 1000) is 4.4 points."""
    assert one(after, seed=4).difference_from(one(before, seed=3)).verdict == word


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [(0.5, 0.53, "higher"), (0.53, 0.5, "lower"), (0.5, 0.5, "no significant difference")],
)
def test_differences_are_paired_example_by_example(before: float, after: float, word: str) -> None:
    """Where all others are read as before, 30 examples of 1,000 are enough."""
    assert one(after, seed=3).difference_from(one(before, seed=3)).verdict == word


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_an_audit_keeps_which_examples_are_read(hits: list[bool]) -> None:
    probe = Outcome(values=np.array(hits), knn=0.5)
    audit = judged("t", probe, {"pixels": probe}, probe, classes=2)
    assert audit.outcome().values.tolist() == hits


def staged(encoder: float, pixels: float, ceiling: float, best: float, untrained: float):
    """The verdict on a task of ten classes with one stage beside the pooled features."""
    floors = {"pixels": probed(pixels, seed=1), "majority": probed(0.1, seed=2)}
    stages = {
        "s1@4": (probed(best, seed=5), probed(untrained, seed=6)),
        "s2@1": (probed(0.1, seed=7), probed(0.1, seed=8)),
    }
    parts = (probed(encoder, seed=3), floors, probed(ceiling, seed=4))
    return judged("t", *parts, classes=10, stages=stages)


@pytest.mark.parametrize(
    ("encoder", "pixels", "ceiling", "best", "untrained", "word"),
    [
        (0.38, 0.94, 0.96, 0.85, 0.90, "hidden"),  # pooling hides it; floor and ceiling are close
        (0.38, 0.40, 0.90, 0.80, 0.40, "hidden"),
        (0.38, 0.94, 0.96, 0.20, 0.90, "lost"),
        (0.12, 0.30, 0.90, 0.12, 0.50, "lost"),
        (0.38, 0.94, 0.96, 0.50, 0.90, "weakened"),  # some of it is left in the stage
        (0.38, 0.94, 0.96, 0.39, 0.40, "weakened"),  # no stage is better, none untrained either
        (0.12, 0.13, 0.90, 0.12, 0.13, "not learned"),
        (0.12, 0.94, 0.96, 0.13, 0.12, "not learned"),
        (0.85, 0.40, 0.90, 0.95, 0.40, "learned"),  # a better stage hides nothing
        (0.985, 0.98, 0.99, 0.99, 0.99, "easy"),
        (0.41, 0.40, 0.43, 0.44, 0.40, "not separable"),
    ],
)
def test_a_feature_is_hidden_or_lost_by_its_stages(
    encoder: float, pixels: float, ceiling: float, best: float, untrained: float, word: str
) -> None:
    found = staged(encoder, pixels, ceiling, best, untrained)
    assert found.verdict == word
    assert found.best_stage == "s1@4"
    assert found.stages["s1@4"]["accuracy"] == pytest.approx(best)
    assert (
        found.stages["s1@4"]["untrained_low"] < untrained < found.stages["s1@4"]["untrained_high"]
    )
    line = found.line()
    assert word in line
    if word in ("hidden", "lost"):
        assert f"best stage s1@4 {100 * best:.0f} %, of the untrained network s1@4" in line


def test_stages_are_chosen_by_training_examples_alone() -> None:
    """Of many stages one has the most hits in the test by chance, and that is no evidence."""
    encoder, floor, ceiling = probed(0.5, 60), probed(0.1, 60), probed(0.7, 60)
    held_out = Outcome(values=probed(0.5, 60, 1).values, validation_error=0.1)
    lucky = Outcome(values=probed(0.8, 60, 2).values, validation_error=0.2)
    for stage, untrained in ((lucky, held_out), (held_out, lucky)):
        stages = {"s1@1": (stage, untrained), "s2@1": (held_out, held_out)}
        found = judged("t", encoder, {"random": floor}, ceiling, classes=10, stages=stages)
        assert (found.best_stage, found.best_untrained_stage) == (
            ("s2@1", "s1@1") if stage is lucky else ("s1@1", "s2@1")
        )
        assert found.verdict == "unclear"


def test_without_stages_nothing_is_hidden_or_lost() -> None:
    """The control arm: the same accuracies of the features, and no stage to compare with."""
    floors = {"pixels": probed(0.94, seed=1), "majority": probed(0.1, seed=2)}
    found = judged("t", probed(0.38, seed=3), floors, probed(0.96, seed=4), classes=10)
    assert (found.verdict, found.best_stage, found.stages) == ("weakened", None, {})


@pytest.mark.parametrize(
    ("encoder", "floor", "ceiling", "wide", "word"),
    [
        (0.45, 0.49, 0.46, 0.55, "hidden"),  # above the floor, where the ceiling is not
        (0.38, 0.49, 0.90, 0.85, "hidden"),
        (0.45, 0.49, 0.46, 0.46, "not separable"),  # no better than an untrained network
        (0.38, 0.94, 0.96, 0.94, "lost"),  # only the input of the wide readout has it
        (0.47, 0.46, 0.48, 0.51, "not separable"),  # higher by less than 5 points
        (0.38, 0.40, 0.95, 0.60, "lost"),  # it has too little of it
        (0.85, 0.40, 0.90, 0.96, "learned"),
    ],
)
def test_the_wide_readout_finds_a_hidden_feature_where_it_is_above_the_floor(
    encoder: float, floor: float, ceiling: float, wide: float, word: str
) -> None:
    """The best stage has less than the features; that of the untrained network has 90 %."""
    floors = {"random": probed(floor, 5000, 1), "majority": probed(0.1, 5000, 2)}
    stages = {"s1@4": (probed(0.2, 5000, 5), probed(0.9, 5000, 6))}
    parts = (probed(encoder, 5000, 3), floors, probed(ceiling, 5000, 4))
    found = judged("t", *parts, classes=10, stages=stages, wide=probed(wide, 5000, 7))
    assert found.verdict == word
    assert found.wide == pytest.approx(wide)
    if word in ("hidden", "lost"):
        assert f"wide features {100 * wide:.0f} %, best stage s1@4" in found.line()
    without = judged("t", *parts, classes=10, stages=stages)
    assert without.wide is None
    assert without.verdict != "hidden"
