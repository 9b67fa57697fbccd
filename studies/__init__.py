"""Studies: quick experiments from which it was decided what to build."""
