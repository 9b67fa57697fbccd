"""Training: one loop for every method and every fleet, with its files."""
