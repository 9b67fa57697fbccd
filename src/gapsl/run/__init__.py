"""A run: its configuration, composition, loop, records, evaluation, recovery and files, and the Python API.

Where to begin: `api` and `serve` start runs, `build` puts one together, `loop` trains it, `recovery` stores
it and goes back. One loop serves every method and every fleet. Nothing here is about a single method, and
nothing here prints.
"""
