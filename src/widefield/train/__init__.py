"""The only room that moves the encoder."""
