"""The live page and the report of runs: what it reads, how it is served, the page itself.

Reads run folders only; it never takes part in training and never writes into a run.
"""
