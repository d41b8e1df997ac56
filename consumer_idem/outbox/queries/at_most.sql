-- Never less than depth.sql finds, from two rows: gaps between ids, parked records and held topics are in it, too.
SELECT coalesce((SELECT max(id) FROM {schema}.outbox) - oldest.id + 1, 0) AS depth,
       coalesce(extract(epoch FROM clock_timestamp() - oldest.created_at), 0)::float8 AS age
FROM (VALUES (1)) AS one (row)
LEFT JOIN (SELECT id, created_at FROM {schema}.outbox ORDER BY id LIMIT 1) AS oldest ON true
