SELECT pg_advisory_xact_lock(hashtextextended('consumer_idem.registry.{schema}', 0))
