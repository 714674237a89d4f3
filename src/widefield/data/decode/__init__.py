"""Encoded files to pixels and samples."""
