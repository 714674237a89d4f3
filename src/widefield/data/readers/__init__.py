"""Readers: a path, a URL or an object -> `Examples`, of which nothing is decoded yet.

A reader raises a ValueError of one line for a source that cannot be read, and a CacheError where
its copy cannot be kept. What is wrong with one example is raised when it is read.
"""
