"""The report: a frame of all stored results, statistics and claims over it, figures, a page, its appendix.

Everything here is computed from stored results alone. Nothing here trains.
"""
