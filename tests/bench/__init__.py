"""The benchmark: `python -m tests.bench`. Every figure is a ratio within one run, and no figure counts whose result is wrong."""
