"""Every objective by name."""

from widefield.methods.alpha_cl import AlphaCL as AlphaCL
from widefield.methods.alpha_cl import AlphaCLConfig as AlphaCLConfig
from widefield.methods.barlow_twins import BarlowTwins as BarlowTwins
from widefield.methods.barlow_twins import BarlowTwinsConfig as BarlowTwinsConfig
from widefield.methods.base import BuildContext as BuildContext
from widefield.methods.base import Method as Method
from widefield.methods.base import MethodConfig as MethodConfig
from widefield.methods.byol import BYOL as BYOL
from widefield.methods.byol import BYOLConfig as BYOLConfig
from widefield.methods.dcl import DCL as DCL
from widefield.methods.dcl import DCLConfig as DCLConfig
from widefield.methods.diet import Diet as Diet
from widefield.methods.diet import DietConfig as DietConfig
from widefield.methods.diet import DietMSE as DietMSE
from widefield.methods.diet import DietMSEConfig as DietMSEConfig
from widefield.methods.distill import Distill as Distill
from widefield.methods.distill import DistillConfig as DistillConfig
from widefield.methods.head_method import HeadConfig as HeadConfig
from widefield.methods.head_method import HeadMethod as HeadMethod
from widefield.methods.head_method import HeadMethodConfig as HeadMethodConfig
from widefield.methods.infonce import InfoNCE as InfoNCE
from widefield.methods.infonce import InfoNCEConfig as InfoNCEConfig
from widefield.methods.lejepa import LeJEPA as LeJEPA
from widefield.methods.lejepa import LeJEPAConfig as LeJEPAConfig
from widefield.methods.mmcr import MMCR as MMCR
from widefield.methods.mmcr import MMCRConfig as MMCRConfig
from widefield.methods.moco import MoCo as MoCo
from widefield.methods.moco import MoCoConfig as MoCoConfig
from widefield.methods.pair import PairLoss as PairLoss
from widefield.methods.pair import PairMethod as PairMethod
from widefield.methods.projector import Projector as Projector
from widefield.methods.projector import ProjectorConfig as ProjectorConfig
from widefield.methods.projector_file import load_projector as load_projector
from widefield.methods.projector_file import save_projector as save_projector
from widefield.methods.row_contrast import RowContrast as RowContrast
from widefield.methods.row_contrast import RowContrastConfig as RowContrastConfig
from widefield.methods.s_diet import SDiet as SDiet
from widefield.methods.s_diet import SDietConfig as SDietConfig
from widefield.methods.simclr import SimCLR as SimCLR
from widefield.methods.simclr import SimCLRConfig as SimCLRConfig
from widefield.methods.simsiam import SimSiam as SimSiam
from widefield.methods.simsiam import SimSiamConfig as SimSiamConfig
from widefield.methods.spectral import Spectral as Spectral
from widefield.methods.spectral import SpectralConfig as SpectralConfig
from widefield.methods.supervised import Supervised as Supervised
from widefield.methods.supervised import SupervisedConfig as SupervisedConfig
from widefield.methods.target import target_networks as target_networks
from widefield.methods.vicreg import VICReg as VICReg
from widefield.methods.vicreg import VICRegConfig as VICRegConfig
from widefield.methods.view_contrast import ViewContrast as ViewContrast
from widefield.methods.view_contrast import ViewContrastConfig as ViewContrastConfig

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
