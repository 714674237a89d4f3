"""Base layer: files, random numbers, memory, precision, validation. It imports no other package."""
