"""GAPSL with one part taken out or replaced by chance, a file each."""
