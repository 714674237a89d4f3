"""From a call's settings to those of a run, around the opening of its data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widefield.config.recipe import Recipe
from widefield.config.resolve import Facts, InitFacts, check, resolve
from widefield.core.hardware import choose_device
from widefield.data import Dataset, plant_names
from widefield.data.open import Data
from widefield.inference.initial_weights import InitialEncoder, init_name, open_init


class Setup:
    """A run whose settings were checked, and whose data are not open yet.

    Args:
        data: as for `pretrain`.
        recipe: name of a recipe, or a whole one.
        given: settings that the user gave.
        download: fetch published weights that this machine lacks.

    Raises:
        ValueError: settings that cannot work, a device or initial weights that are not there.
    """

    def __init__(
        self, data: Data, recipe: str | Recipe, given: Mapping[str, Any], *, download: bool
    ) -> None:
        self._asked, self._given = recipe, with_init_name(given)
        checked = check(recipe, self._given)  # before anything is opened
        self._device = choose_device(checked.device)
        self._planted = plant_names(str(data)) if isinstance(data, str | Path) else frozenset()
        self._start: InitialEncoder | None = None
        self._init: InitFacts | None = None
        if checked.init is not None:
            spec = given.get("init")
            self._start = open_init(checked.init if spec is None else spec, download=download)
            encoder = self._start.encoder
            self._init = InitFacts(config=encoder.config, size_is_fixed=encoder.size_is_fixed)
        self.recipe = check(recipe, self._given, planted=self._planted, init=self._init)
        """Settings as far as they are known, which say how to open the data."""

    def finish(self, dataset: Dataset) -> tuple[Recipe, tuple[str, ...], InitialEncoder | None]:
        """Return resolved settings, notes on them, and the initial weights, fitted to the data.

        Raises:
            ValueError: as `resolve`, or the initial weights do not fit the data.
        """
        start = None if self._start is None else self._start.fitted(dataset)
        facts = Facts.of(dataset, device=self._device, planted=self._planted, init=self._init)
        return *resolve(self._asked, self._given, facts), start


def with_init_name(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings as `run.yaml` has them: of initial weights, their name."""
    spec = given.get("init")
    return given if spec is None else {**given, "init": init_name(spec)}
