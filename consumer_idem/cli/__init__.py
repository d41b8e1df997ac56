"""The command `consumer-idem`: it parses and prints; what the commands do is the library's.

Exit status: 0 done, 1 it failed or nothing was found, 2 wrongly called or could not start, 130 interrupted.
"""

from consumer_idem.cli.main import main

__all__ = ["main"]
