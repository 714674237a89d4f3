"""Storage of the rows of a per-example head, in memory or on disk."""
