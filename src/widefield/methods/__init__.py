"""Every objective by name."""

from widefield.methods.alpha_cl import AlphaCl
from widefield.methods.barlow_twins import BarlowTwins
from widefield.methods.base import Method, RunFacts
from widefield.methods.byol import Byol
from widefield.methods.diet import Diet
from widefield.methods.diet_mse import DietMse
from widefield.methods.infonce import InfoNce
from widefield.methods.moco import MoCo
from widefield.methods.s_diet import SDiet
from widefield.methods.simclr import SimClr
from widefield.methods.simsiam import SimSiam
from widefield.methods.spectral import Spectral
from widefield.methods.supervised import Supervised
from widefield.methods.vicreg import VicReg
from widefield.recipe import Recipe, check_name

METHODS: dict[str, type[Method]] = {
    "s-diet": SDiet,
    "diet": Diet,
    "diet-mse": DietMse,
    "simclr": SimClr,
    "infonce": InfoNce,
    "alpha-cl": AlphaCl,
    "spectral": Spectral,
    "barlow-twins": BarlowTwins,
    "vicreg": VicReg,
    "moco": MoCo,
    "byol": Byol,
    "simsiam": SimSiam,
    "supervised": Supervised,
}


def build_method(recipe: Recipe, facts: RunFacts) -> Method:
    """The method that `recipe` names.

    Raises:
        ValueError: no such method; the message gives the nearest one.
    """
    check_name("method", recipe.method, tuple(METHODS))
    return METHODS[recipe.method].from_recipe(recipe, facts)


__all__ = ["METHODS", "Method", "RunFacts", "build_method"]
