"""Every objective by name."""

from widefield.methods.alpha_cl import AlphaCLSettings as AlphaCLSettings
from widefield.methods.barlow_twins import BarlowTwinsSettings as BarlowTwinsSettings
from widefield.methods.base import BuildContext as BuildContext
from widefield.methods.base import Method as Method
from widefield.methods.base import MethodSettings as MethodSettings
from widefield.methods.byol import BYOL as BYOL
from widefield.methods.byol import BYOLSettings as BYOLSettings
from widefield.methods.dcl import DCLSettings as DCLSettings
from widefield.methods.diet import Diet as Diet
from widefield.methods.diet import DietSettings as DietSettings
from widefield.methods.diet_mse import DietMSE as DietMSE
from widefield.methods.diet_mse import DietMSESettings as DietMSESettings
from widefield.methods.infonce import InfoNCESettings as InfoNCESettings
from widefield.methods.lejepa import LeJEPA as LeJEPA
from widefield.methods.lejepa import LeJEPASettings as LeJEPASettings
from widefield.methods.moco import MoCo as MoCo
from widefield.methods.moco import MoCoSettings as MoCoSettings
from widefield.methods.pair import PairLoss as PairLoss
from widefield.methods.projector import Projector as Projector
from widefield.methods.projector import ProjectorSettings as ProjectorSettings
from widefield.methods.projector_file import load_projector as load_projector
from widefield.methods.projector_file import save_projector as save_projector
from widefield.methods.row_contrast import RowContrastSettings as RowContrastSettings
from widefield.methods.row_method import RowMethod as RowMethod
from widefield.methods.row_method import RowMethodSettings as RowMethodSettings
from widefield.methods.row_method import RowSettings as RowSettings
from widefield.methods.s_diet import SDietSettings as SDietSettings
from widefield.methods.simclr import SimCLRSettings as SimCLRSettings
from widefield.methods.simsiam import SimSiam as SimSiam
from widefield.methods.simsiam import SimSiamSettings as SimSiamSettings
from widefield.methods.spectral import SpectralSettings as SpectralSettings
from widefield.methods.supervised import Supervised as Supervised
from widefield.methods.supervised import SupervisedSettings as SupervisedSettings
from widefield.methods.target import target_networks as target_networks
from widefield.methods.vicreg import VICRegSettings as VICRegSettings
from widefield.methods.view_contrast import ViewContrastSettings as ViewContrastSettings

METHODS: dict[str, type[MethodSettings]] = {
    "view-contrast": ViewContrastSettings,
    "row-contrast": RowContrastSettings,
    "s-diet": SDietSettings,
    "diet": DietSettings,
    "diet-mse": DietMSESettings,
    "simclr": SimCLRSettings,
    "dcl": DCLSettings,
    "infonce": InfoNCESettings,
    "alpha-cl": AlphaCLSettings,
    "spectral": SpectralSettings,
    "barlow-twins": BarlowTwinsSettings,
    "vicreg": VICRegSettings,
    "lejepa": LeJEPASettings,
    "moco": MoCoSettings,
    "byol": BYOLSettings,
    "simsiam": SimSiamSettings,
    "supervised": SupervisedSettings,
}
"""Settings of every method; `METHODS[name]()` has the measured defaults."""

DEFAULT_METHOD = "view-contrast"
"""The method of a run of a few epochs that names none."""

LONG_METHOD = "row-contrast"
"""The method of a longer run that names none."""

CEILING = "supervised"
"""The method that is told the labels: what others are measured against."""
