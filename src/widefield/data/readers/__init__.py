"""Sources of examples, one format a file."""
