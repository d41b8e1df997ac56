-- The others take free shards at once instead of at their next heartbeat.
SELECT pg_notify('{schema}_outbox', 'shards')
