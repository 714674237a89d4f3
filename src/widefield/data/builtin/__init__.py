"""Data sets that need no download."""
