"""Real PostgreSQL and Kafka servers for tests, the demo and benchmarks: started, killed, stopped, and gone with the process."""
