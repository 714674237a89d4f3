"""Encoders: x[B, C, H, W] in [0, 1] -> h[B, D]; of timm, torchvision and other weights."""

from typing import TYPE_CHECKING

from widefield.core.lazy import lazy_exports

if TYPE_CHECKING:
    from widefield.encoders.config import EncoderConfig as EncoderConfig
    from widefield.encoders.config import encoder_config as encoder_config
    from widefield.encoders.conv1d import SIGNAL_NETWORKS as SIGNAL_NETWORKS
    from widefield.encoders.encoder import Encoder as Encoder
    from widefield.encoders.encoder import build_encoder as build_encoder
    from widefield.encoders.layers import Family as Family
    from widefield.encoders.layers import family_of as family_of
    from widefield.encoders.layers import layer_names as layer_names
    from widefield.encoders.names import is_own as is_own
    from widefield.encoders.own import OwnNetwork as OwnNetwork
    from widefield.encoders.own import give_network as give_network
    from widefield.encoders.readout import Readout as Readout
    from widefield.encoders.readout import Wide as Wide
    from widefield.encoders.readout import load_readout as load_readout
    from widefield.encoders.readout import save_readout as save_readout
    from widefield.encoders.readout_fit import FIT_EXAMPLES as FIT_EXAMPLES
    from widefield.encoders.readout_fit import fit_readout as fit_readout
    from widefield.encoders.settings import EncoderSettings as EncoderSettings
    from widefield.encoders.stages import stage_maps as stage_maps
    from widefield.encoders.untrained import untrained_like as untrained_like
    from widefield.encoders.untrained import untrained_starts as untrained_starts
    from widefield.encoders.weights.adapt import adapt_encoder as adapt_encoder
    from widefield.encoders.weights.files import ENCODER_FILE as ENCODER_FILE
    from widefield.encoders.weights.files import READOUT_FILE as READOUT_FILE
    from widefield.encoders.weights.files import check_weights as check_weights
    from widefield.encoders.weights.files import first_invalid as first_invalid
    from widefield.encoders.weights.files import has_settings as has_settings
    from widefield.encoders.weights.files import is_config as is_config
    from widefield.encoders.weights.files import load_encoder as load_encoder
    from widefield.encoders.weights.files import save_encoder as save_encoder
    from widefield.encoders.weights.files import save_encoder_file as save_encoder_file
    from widefield.encoders.weights.files import timm_snippet as timm_snippet
    from widefield.encoders.weights.foreign import load_foreign as load_foreign
    from widefield.encoders.weights.foreign import load_module as load_module
    from widefield.encoders.weights.foreign import own_encoder as own_encoder
    from widefield.encoders.weights.match import WeightMatch as WeightMatch
    from widefield.encoders.weights.model_folder import MODEL_FILES as MODEL_FILES
    from widefield.encoders.weights.model_folder import (
        check_timm_support as check_timm_support,
    )
    from widefield.encoders.weights.model_folder import is_exported as is_exported
    from widefield.encoders.weights.model_folder import is_model_folder as is_model_folder
    from widefield.encoders.weights.model_folder import load_model_folder as load_model_folder
    from widefield.encoders.weights.model_folder import needs_entry as needs_entry
    from widefield.encoders.weights.model_folder import (
        register_with_timm as register_with_timm,
    )
    from widefield.encoders.weights.model_folder import save_model_folder as save_model_folder
    from widefield.encoders.weights.normalization import (
        module_normalization as module_normalization,
    )
    from widefield.encoders.weights.onnx_file import export_onnx as export_onnx
    from widefield.encoders.weights.pretrained import cached_weights as cached_weights
    from widefield.encoders.weights.pretrained import download_weights as download_weights
    from widefield.encoders.wrappers import FeatureMap as FeatureMap
    from widefield.encoders.wrappers import Normalized as Normalized
    from widefield.encoders.wrappers import Projected as Projected

__getattr__, __dir__ = lazy_exports(__name__)
