"""Studies: tables and figures of the four papers, and questions of our own, run by one command.

A study is an entry of one file: the encoders that it trains (`Arm`), what it measures of each, and
the criteria of its findings, which are written before its results. `python -m studies run ID`
trains what is missing, keeps every number in `studies/results/`, and decides the findings.
"""
