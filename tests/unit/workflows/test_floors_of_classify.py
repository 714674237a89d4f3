"""Floors of `classify`: the untrained network, with the probe that the encoder has."""

from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.workflows.probe_scores import untrained_readouts


def test_wide_floors_name_their_pooled_columns() -> None:
    """A probe of wide features scales the others apart from these."""
    data = open_dataset("photos", max_examples=24, image_size=16)
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    for pooled, wide in untrained_readouts(open_encoder(encoder), data):
        assert pooled.pooled is None
        assert pooled.features(data.images).shape == (24, encoder.dim)
        assert wide is not None
        assert wide.pooled == encoder.dim < wide.features(data.images).shape[1]
