"""What people look at: comparisons, diagnosis, tables, plots, progress.

Reads what runs record and calls the public functions of `run`; nothing in here takes part in training.
"""
