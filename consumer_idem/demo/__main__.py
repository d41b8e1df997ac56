"""`python -m consumer_idem.demo`: the same as `consumer-idem demo`."""

import runpy
import sys

sys.argv.insert(1, "demo")
runpy.run_module("consumer_idem.cli", run_name="__main__")
