"""Floors of `classify`: the untrained network, with the probe that the encoder has."""

from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.workflows.classify_floors import floor_features


def test_wide_floors_name_their_pooled_columns() -> None:
    """A probe of wide features scales the others apart from these."""
    data = open_dataset("photos", max_examples=24, image_size=16)
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    floors = floor_features(open_encoder(encoder), data)
    assert floors.keys() == {"raw pixels", "the untrained network"}
    found = {(h.shape[1] > encoder.dim, pooled) for h, pooled in floors["the untrained network"]}
    assert found == {(False, None), (True, encoder.dim)}
