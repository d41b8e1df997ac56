-- Every transaction that has added to the outbox, or is about to, holds this lock until it has ended, whatever comes of it.
-- The sequence is read first: whoever took an id up to `last` has the lock by the time the locks are read, or has ended.
-- The server's start time tells that the list before was another server's.
SELECT pg_postmaster_start_time() AS server, taken.last, adding.writers
FROM (SELECT last_value - (NOT is_called)::int AS last FROM {schema}.outbox_id_seq OFFSET 0) AS taken
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(virtualtransaction), '{}') AS writers
    FROM pg_locks
    WHERE taken.last >= 0
      AND locktype = 'relation'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND relation = '{schema}.outbox'::regclass
      AND mode = 'RowExclusiveLock'
      AND granted
) AS adding
