"""Training: build, step, loop, checkpoints and the run folder; no other package moves an encoder."""
