"""A line for a terminal is one line, whatever it is made of."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from widefield.core.names import LONGEST, one_line


@given(st.text(st.characters(codec=None), max_size=2000))
def test_one_line_that_can_be_seen(text: str) -> None:
    line = one_line(text)
    assert len(line) <= LONGEST
    assert all(unicodedata.category(c)[0] != "C" for c in line)
    assert line.encode("utf-8").decode("utf-8") == line
    assert one_line(line) == line


def test_both_ends_of_a_long_message_stay() -> None:
    line = one_line("what " + "x" * 1000 + " remedy")
    assert line.startswith("what x")
    assert line.endswith("x remedy")


def test_escapes_and_bidirectional_marks_are_shown() -> None:
    assert one_line("a\x1b]0;title\x07b\u202ec\udcff") == r"a\x1b]0;title\x07b\u202ec\udcff"
