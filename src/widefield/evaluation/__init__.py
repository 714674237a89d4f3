"""Scores of frozen encoders, their floors, and the comparison of two encoders."""
