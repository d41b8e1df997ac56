"""One file per contestant: a program that consumes a topic until it is stopped."""
