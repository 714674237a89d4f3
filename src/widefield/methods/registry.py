"""Every objective by name."""

from widefield.methods.alpha_cl import AlphaCLConfig
from widefield.methods.barlow_twins import BarlowTwinsConfig
from widefield.methods.base import MethodConfig
from widefield.methods.byol import BYOLConfig
from widefield.methods.dcl import DCLConfig
from widefield.methods.diet import DietConfig, DietMSEConfig
from widefield.methods.distill import DistillConfig
from widefield.methods.infonce import InfoNCEConfig
from widefield.methods.lejepa import LeJEPAConfig
from widefield.methods.mmcr import MMCRConfig
from widefield.methods.moco import MoCoConfig
from widefield.methods.row_contrast import RowContrastConfig
from widefield.methods.s_diet import SDietConfig
from widefield.methods.simclr import SimCLRConfig
from widefield.methods.simsiam import SimSiamConfig
from widefield.methods.spectral import SpectralConfig
from widefield.methods.supervised import SupervisedConfig
from widefield.methods.vicreg import VICRegConfig
from widefield.methods.view_contrast import ViewContrastConfig

METHODS: dict[str, type[MethodConfig]] = {
    "view-contrast": ViewContrastConfig,
    "row-contrast": RowContrastConfig,
    "s-diet": SDietConfig,
    "diet": DietConfig,
    "diet-mse": DietMSEConfig,
    "simclr": SimCLRConfig,
    "dcl": DCLConfig,
    "infonce": InfoNCEConfig,
    "alpha-cl": AlphaCLConfig,
    "spectral": SpectralConfig,
    "barlow-twins": BarlowTwinsConfig,
    "vicreg": VICRegConfig,
    "mmcr": MMCRConfig,
    "lejepa": LeJEPAConfig,
    "moco": MoCoConfig,
    "byol": BYOLConfig,
    "simsiam": SimSiamConfig,
    "distill": DistillConfig,
    "supervised": SupervisedConfig,
}
"""Settings of every method; `METHODS[name]()` has the measured defaults."""

CEILING = "supervised"
"""The supervised method, the ceiling of the others."""
