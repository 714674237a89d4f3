"""`widefield recipe`: every recipe as a table, beside its paper."""

import pytest

from commands import Command
from widefield.config.defaults import LONG_METHOD
from widefield.config.recipes import FIRST_METHOD, PUBLISHED, RECIPES, make_recipe


@pytest.mark.parametrize("name", RECIPES)
def test_the_command_prints_the_table(command: Command, name: str) -> None:
    printed = command.text("recipe", name)
    assert FIRST_METHOD.get(name, LONG_METHOD) in printed
    assert ("unstated" in printed) == (name in PUBLISHED)
    values = command.json("recipe", name)
    assert values["settings"]["epochs"]["value"] == make_recipe(name).epochs


def test_the_command_refuses_in_one_line(command: Command) -> None:
    refused = command.refused("recipe", "solo-learn", "--method", "s-diet")
    assert "the recipe solo-learn has no settings for s-diet" in refused
    assert "unknown recipe 'solo-lern'" in command.refused("recipe", "solo-lern")
