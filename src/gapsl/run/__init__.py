"""A run: its configuration, composition, loop, records, evaluation, recovery and files, and the Python API.

One loop serves every method and every fleet. Nothing here is about a single method, and nothing here prints.
"""
