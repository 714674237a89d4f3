"""Encoders: x[B, C, H, W] in [0, 1] -> h[B, D]; timm's, torchvision's, anybody's weights."""

from widefield.encoders.encoder import Encoder as Encoder
from widefield.encoders.encoder import EncoderConfig as EncoderConfig
from widefield.encoders.encoder import build_encoder as build_encoder
from widefield.encoders.encoder import encoder_config as encoder_config
from widefield.encoders.feature_map import FeatureMap as FeatureMap
from widefield.encoders.files import export_onnx as export_onnx
from widefield.encoders.files import has_settings as has_settings
from widefield.encoders.files import is_config as is_config
from widefield.encoders.files import load_encoder as load_encoder
from widefield.encoders.files import no_numbers as no_numbers
from widefield.encoders.files import refuse_other_weights as refuse_other_weights
from widefield.encoders.files import save_encoder as save_encoder
from widefield.encoders.files import save_encoder_file as save_encoder_file
from widefield.encoders.files import timm_snippet as timm_snippet
from widefield.encoders.foreign import Match as Match
from widefield.encoders.foreign import cached_weights as cached_weights
from widefield.encoders.foreign import load_foreign as load_foreign
from widefield.encoders.projected import Projected as Projected
from widefield.encoders.settings import EncoderSettings as EncoderSettings
from widefield.encoders.untrained import untrained_like as untrained_like
from widefield.encoders.untrained import untrained_starts as untrained_starts
from widefield.encoders.vision import VisionEncoder as VisionEncoder
from widefield.encoders.vision import check_vision as check_vision
