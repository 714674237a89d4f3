"""Encoders: x[B, C, H, W] in [0, 1] -> h[B, D]; any timm image model by name."""

from widefield.encoders.encoder import Encoder as Encoder
from widefield.encoders.encoder import EncoderConfig as EncoderConfig
from widefield.encoders.encoder import build_encoder as build_encoder
from widefield.encoders.encoder import encoder_config as encoder_config
from widefield.encoders.files import export_onnx as export_onnx
from widefield.encoders.files import load_encoder as load_encoder
from widefield.encoders.files import save_encoder as save_encoder
from widefield.encoders.files import timm_snippet as timm_snippet
from widefield.encoders.prepool import Prepool as Prepool
