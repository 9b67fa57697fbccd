"""Options of every method: what the losses are (calibration, balance), and probes that align devices.

Knows no single method.
"""
