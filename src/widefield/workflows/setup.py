"""Resolution of the settings of a run, before and after its data are opened."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from widefield.config.recipe import Recipe
from widefield.config.resolve import InitInfo, RunContext, check, resolve
from widefield.core.hardware import choose_device
from widefield.data import Dataset, plant_names
from widefield.data.readers import hub
from widefield.data.source import Data
from widefield.data.spec import parse
from widefield.encoders import Encoder, give_network, is_own
from widefield.inference.initial_weights import (
    InitialEncoder,
    check_published,
    init_name,
    open_init,
)
from widefield.methods.distill import DistillConfig


class Setup:
    """Settings of a run that were checked, while its data are not open yet.

    Args:
        data: as for `pretrain`.
        recipe: name of a recipe, or a whole one.
        overrides: settings of the user.
        download: fetch published weights, and data of the Hub, that are missing.

    Raises:
        ValueError: invalid settings, a device that is not there, or no such weights of the initial
            encoder or of a teacher.
    """

    def __init__(
        self, data: Data, recipe: str | Recipe, overrides: Mapping[str, Any], *, download: bool
    ) -> None:
        if download and isinstance(data, str) and parse(data).base.startswith(hub.PREFIX):
            hub.fetch(parse(data).base)
        self._base, self._overrides = recipe, with_names(overrides)
        checked = check(recipe, self._overrides)  # before weights are loaded
        if isinstance(checked.method, DistillConfig):
            for teacher in checked.method.teacher or ():
                check_published(teacher, download=download)
        self._device = choose_device(checked.device)
        self._planted = plant_names(str(data)) if isinstance(data, str | Path) else frozenset()
        self._initial: InitialEncoder | None = None
        self._init: InitInfo | None = None
        if checked.init is not None:
            spec = overrides.get("init")
            self._initial = open_init(checked.init if spec is None else spec, download=download)
            encoder = self._initial.encoder
            self._init = InitInfo(config=encoder.config, size_is_fixed=encoder.size_is_fixed)
        self.recipe = check(recipe, self._overrides, planted=self._planted, init=self._init)
        """Settings as far as they are known, enough to open the data."""

    def finish(self, dataset: Dataset) -> tuple[Recipe, tuple[str, ...], InitialEncoder | None]:
        """Return resolved settings, notes on them, and the initial encoder, adapted to the data.

        Raises:
            ValueError: as `resolve`, or the initial encoder does not fit the data.
        """
        initial = None if self._initial is None else self._initial.adapted(dataset)
        info = RunContext.of(dataset, device=self._device, planted=self._planted, init=self._init)
        return *resolve(self._base, self._overrides, info), initial


def with_names(settings: Mapping[str, Any], *, recorded: str | None = None) -> Mapping[str, Any]:
    """Return settings as `run.yaml` stores them, with names of initial weights and network.

    A network of one's own is given here, under the name `recorded` in its run too.
    """
    named, init, encoder = dict(settings), settings.get("init"), settings.get("encoder")
    if init is not None:
        named["init"] = init_name(init)
        if not isinstance(init, Encoder) and (isinstance(init, nn.Module) or is_own(str(init))):
            give_network(init)
    if isinstance(encoder, nn.Module) or (isinstance(encoder, str) and is_own(encoder)):
        given = give_network(encoder, recorded=recorded)
        named["encoder"] = recorded or given.name
    teachers = named.pop("teacher", None)
    if teachers is not None:
        listed = [teachers] if isinstance(teachers, str | os.PathLike) else teachers
        named["teacher"] = tuple(init_name(teacher) for teacher in listed)
    return named
