-- Which keys are held by a message that was applied and is the very same, by their place in the arrays, from 1: the same delivery once
-- more, or another one. Whatever else holds a key, a claim finds out.
-- An array that is too short ends in NULLs: what is the same in all rows is given once.
WITH repeated AS (
    SELECT claim.place::int,
           inbox.topic = coalesce(claim.topic, ($4::int[])[1]) AND inbox.partition = coalesce(claim.partition, ($5::int[])[1])
           AND inbox."offset" = claim."offset" AS redelivered
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[], $6::bigint[], $7::text[], $8::text[], $9::bytea[], $10::smallint[])
         WITH ORDINALITY
         AS claim (key_hash, scope, source, topic, partition, "offset", message_id, tenant, fingerprint, fingerprint_version, place)
    -- One look into the index for each, however small the table is thought to be.
    CROSS JOIN LATERAL (SELECT * FROM {schema}.inbox WHERE inbox.key_hash = claim.key_hash LIMIT 1) AS inbox
    WHERE inbox.status = 'a'
      AND inbox.scope = coalesce(claim.scope, ($2::int[])[1]) AND inbox.source = coalesce(claim.source, ($3::int[])[1])
      AND inbox.tenant IS NOT DISTINCT FROM claim.tenant AND inbox.message_id = claim.message_id
      AND inbox.fingerprint = claim.fingerprint AND inbox.fingerprint_version = coalesce(claim.fingerprint_version, ($10::smallint[])[1])
)
SELECT coalesce(array_agg(place) FILTER (WHERE redelivered), '{}') AS redelivered,
       coalesce(array_agg(place) FILTER (WHERE NOT redelivered), '{}') AS copies
FROM repeated
