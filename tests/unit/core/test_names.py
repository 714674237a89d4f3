import pytest

from widefield.core.names import check_name


def test_a_known_name_passes() -> None:
    check_name("letter", "a", ("a", "b"))


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(ValueError, match=r"^unknown method 'simcrl': did you mean 'simclr'\?$"):
        check_name("method", "simcrl", ("byol", "simclr"))


def test_without_a_near_match_all_names_are_given() -> None:
    with pytest.raises(ValueError, match="known: a, b"):
        check_name("letter", "zzzz", ("a", "b"))
