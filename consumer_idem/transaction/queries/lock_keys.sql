SELECT pg_advisory_xact_lock(hashed.key)
FROM (SELECT DISTINCT hashtextextended(name, 0) AS key FROM unnest($1::text[]) AS name ORDER BY 1) AS hashed
