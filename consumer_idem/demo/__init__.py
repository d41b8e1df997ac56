"""The demo: payments with duplicates, conflicts and garbage, a killed worker, and a check that trusts none of the library's counters."""
