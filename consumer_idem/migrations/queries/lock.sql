SELECT pg_advisory_xact_lock(hashtextextended('consumer_idem.schema.{schema}', 0))
