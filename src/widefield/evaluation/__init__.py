"""Questions to a frozen encoder, and comparisons of two encoders."""
