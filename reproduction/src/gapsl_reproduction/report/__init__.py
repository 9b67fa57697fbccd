"""What was found: figures, verdicts and a page, made from stored results alone."""
