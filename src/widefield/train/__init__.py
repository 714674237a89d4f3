"""Training: build, step, loop, checkpoints, run folder."""
