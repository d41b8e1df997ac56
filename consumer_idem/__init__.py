"""Exactly-once effects for Kafka consumers."""
