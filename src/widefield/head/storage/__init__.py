"""Where the rows of a per-example head are kept: memory or disk."""
