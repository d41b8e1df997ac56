"""`python -m consumer_idem.cli`, for where the script `consumer-idem` is not on the path."""

from consumer_idem.cli.main import main

main()
