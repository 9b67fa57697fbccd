"""The device's end: staying connected, commands, its checkpoints, its data.

Knows no method.
"""
