-- Which keys are held by a message that was applied and is the very same, by their place in the arrays, from 1: the same delivery once
-- more, or another one. Whatever else holds a key, a claim finds out. If that is all of them, the copies are noted at once.
-- An array that is too short ends in NULLs: what is the same in all rows is given once.
WITH repeated AS (
    SELECT claim.place::int, claim.key_hash, came.topic, came.partition, claim."offset",
           inbox.topic = came.topic AND inbox.partition = came.partition AND inbox."offset" = claim."offset" AS redelivered
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[], $6::bigint[], $7::text[], $8::text[], $9::bytea[], $10::smallint[])
         WITH ORDINALITY
         AS claim (key_hash, scope, source, topic, partition, "offset", message_id, tenant, fingerprint, fingerprint_version, place)
    CROSS JOIN LATERAL (SELECT coalesce(claim.topic, ($4::int[])[1]), coalesce(claim.partition, ($5::int[])[1])) AS came (topic, partition)
    -- One look into the index for each, however small the table is thought to be.
    CROSS JOIN LATERAL (SELECT * FROM {schema}.inbox WHERE inbox.key_hash = claim.key_hash LIMIT 1) AS inbox
    WHERE inbox.status = 'a'
      AND inbox.scope = coalesce(claim.scope, ($2::int[])[1]) AND inbox.source = coalesce(claim.source, ($3::int[])[1])
      AND inbox.tenant IS NOT DISTINCT FROM claim.tenant AND inbox.message_id = claim.message_id
      AND inbox.fingerprint = claim.fingerprint AND inbox.fingerprint_version = coalesce(claim.fingerprint_version, ($10::smallint[])[1])
), whole AS (
    SELECT count(*) = cardinality($1::uuid[]) AS noted FROM repeated
), written AS (
    INSERT INTO {schema}.duplicate (key_hash, topic, partition, "offset")
    SELECT key_hash, topic, partition, "offset" FROM repeated
    WHERE NOT redelivered AND "offset" >= $11::bigint AND (SELECT noted FROM whole)
)
SELECT coalesce(array_agg(place) FILTER (WHERE redelivered), '{}') AS redelivered,
       coalesce(array_agg(place) FILTER (WHERE NOT redelivered), '{}') AS copies,
       (SELECT noted FROM whole) AS noted
FROM repeated
