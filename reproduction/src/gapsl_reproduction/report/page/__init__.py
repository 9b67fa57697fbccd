"""The page of results, a module a section: every number on it comes from stored results or the paper."""
