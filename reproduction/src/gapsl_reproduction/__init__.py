"""The paper's tables, figures and claims, and ours: a catalogue of runs, a queue that does them, a report.

Nothing of the library imports this. What every user of the library needs does not belong here.
"""
