"""A trained model taken out of a run: loaded, exported, used, and served in two parts.

Reads runs and exports; it trains nothing.
"""
