"""Decoding of files to pixels and samples."""
