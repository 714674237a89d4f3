"""Training: build, step, loop, checkpoints, run folder; nothing else moves an encoder."""
