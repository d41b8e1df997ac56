-- Every transaction that has added to the outbox, or is about to, holds this lock until it has ended, whatever comes of it.
-- The server's start time tells that the list before was another server's.
SELECT pg_postmaster_start_time() AS server,
       coalesce(array_agg(virtualtransaction), '{}') AS writers
FROM pg_locks
WHERE locktype = 'relation'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND relation = '{schema}.outbox'::regclass
  AND mode = 'RowExclusiveLock'
  AND granted
