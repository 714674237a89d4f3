from .average import averaged as averaged
from .config import EncoderConfig as EncoderConfig
from .config import encoder_config as encoder_config
from .conv1d import SIGNAL_NETWORKS as SIGNAL_NETWORKS
from .encoder import Encoder as Encoder
from .encoder import FeatureMap as FeatureMap
from .encoder import Normalized as Normalized
from .encoder import Projected as Projected
from .encoder import build_encoder as build_encoder
from .layers import Family as Family
from .layers import family_of as family_of
from .layers import layer_names as layer_names
from .names import is_own as is_own
from .own import OwnNetwork as OwnNetwork
from .own import give_network as give_network
from .readout import Readout as Readout
from .readout import Wide as Wide
from .readout import load_readout as load_readout
from .readout import save_readout as save_readout
from .readout_fit import FIT_EXAMPLES as FIT_EXAMPLES
from .readout_fit import fit_readout as fit_readout
from .settings import EncoderSettings as EncoderSettings
from .stages import stage_maps as stage_maps
from .untrained import untrained_like as untrained_like
from .untrained import untrained_starts as untrained_starts
from .weights.adapt import adapt_encoder as adapt_encoder
from .weights.files import ENCODER_FILE as ENCODER_FILE
from .weights.files import READOUT_FILE as READOUT_FILE
from .weights.files import first_invalid as first_invalid
from .weights.files import has_settings as has_settings
from .weights.files import is_config as is_config
from .weights.files import load_encoder as load_encoder
from .weights.files import load_saved_module as load_saved_module
from .weights.files import save_encoder as save_encoder
from .weights.files import save_encoder_file as save_encoder_file
from .weights.files import save_module as save_module
from .weights.files import timm_snippet as timm_snippet
from .weights.foreign import load_foreign as load_foreign
from .weights.foreign import load_module as load_module
from .weights.foreign import own_encoder as own_encoder
from .weights.match import WeightMatch as WeightMatch
from .weights.model_folder import MODEL_FILES as MODEL_FILES
from .weights.model_folder import (
    check_timm_support as check_timm_support,
)
from .weights.model_folder import is_exported as is_exported
from .weights.model_folder import is_model_folder as is_model_folder
from .weights.model_folder import load_model_folder as load_model_folder
from .weights.model_folder import needs_entry as needs_entry
from .weights.model_folder import (
    register_with_timm as register_with_timm,
)
from .weights.model_folder import save_model_folder as save_model_folder
from .weights.normalization import (
    module_normalization as module_normalization,
)
from .weights.onnx_file import export_onnx as export_onnx
from .weights.pretrained import cached_weights as cached_weights
from .weights.pretrained import download_weights as download_weights
