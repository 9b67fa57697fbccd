"""What runs at the edge: a device with its client-side model and its batches, and what it exchanges.

Knows no method, no transport and no file of a run.
"""
