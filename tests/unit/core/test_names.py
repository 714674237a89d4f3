import pytest

from widefield.core.names import check_name, printable


def test_a_known_name_passes() -> None:
    check_name("letter", "a", ("a", "b"))


@pytest.mark.parametrize("given", ["simcrl", "SimCLR", "SIMCLR"])
def test_the_nearest_name_is_offered(given: str) -> None:
    with pytest.raises(ValueError, match=rf"^unknown method '{given}': did you mean 'simclr'\?$"):
        check_name("method", given, ("byol", "simclr"))


@pytest.mark.parametrize(("given", "known"), [("dino", "infonce"), ("mae", "simsiam")])
def test_a_name_that_is_only_a_little_alike_is_not_offered(given: str, known: str) -> None:
    with pytest.raises(ValueError, match=f"^unknown method '{given}': known: byol, {known}$"):
        check_name("method", given, ("byol", known))


def test_where_names_are_many_what_lists_them_is_named() -> None:
    with pytest.raises(ValueError, match=r"^unknown setting 'callback': --help lists them$"):
        check_name("setting", "callback", ("decay_bias_and_norm", "epochs"), list_command="--help")


@pytest.mark.parametrize("space", [" ", "\u00a0", "\u202f", "\u3000"])
def test_spaces_of_any_width_stay_as_they_are(space: str) -> None:
    assert printable(f"9.41{space}AM.png") == f"9.41{space}AM.png"


@pytest.mark.parametrize(
    ("hidden", "escape"),
    [("\n", r"\n"), ("\u2028", r"\u2028"), ("\u200b", r"\u200b"), ("\x9b", r"\x9b")],
)
def test_what_is_no_space_and_cannot_be_seen_is_escaped(hidden: str, escape: str) -> None:
    assert printable(f"a\u00a0{hidden}b") == f"a\u00a0{escape}b"
