-- What keeps vacuum from cleaning: the oldest transaction, replication slot or prepared transaction of the server.
WITH holder AS (
    SELECT 'transaction' AS kind, pid::text || coalesce(' (' || nullif(application_name, '') || ')', '') AS name,
           greatest(age(backend_xmin), age(backend_xid)) AS age, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
    FROM pg_stat_activity
    WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
      -- Transactions of other databases hold nothing back here, nor does the cleaning itself.
      AND datname = current_database() AND backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT 'prepared transaction', gid, age(transaction), extract(epoch FROM clock_timestamp() - prepared)::float8 FROM pg_prepared_xacts
    WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot', slot_name, greatest(age(xmin), age(catalog_xmin)), NULL
    FROM pg_replication_slots WHERE xmin IS NOT NULL
), oldest AS (
    SELECT * FROM holder ORDER BY age DESC LIMIT 1
)
SELECT (SELECT count(*) FROM {schema}.outbox WHERE state = 'x') AS parked,
       (SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM {schema}.outbox WHERE state = 'x') AS parked_since,
       (SELECT coalesce(array_agg(DISTINCT topic || ': ' || error), '{}') FROM {schema}.outbox_hold) AS held,
       (SELECT count(*) FROM {schema}.outbox_relay WHERE lease_until > clock_timestamp()) AS relays,
       (SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = '{schema}.outbox'::regclass) AS dead_rows,
       oldest.kind, oldest.name, oldest.age AS transactions, oldest.seconds
FROM (VALUES (1)) AS one (row) LEFT JOIN oldest ON true
