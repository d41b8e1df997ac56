-- Insert first: returned are the keys that somebody else holds, or this transaction already.
-- Sorted, so that two workers take the same keys in the same order and cannot deadlock.
-- An array that is too short ends in NULLs: what is the same in all rows is given once.
-- Times are seconds since 1970, which a client sends faster than a timestamptz.
WITH claimed AS (
    INSERT INTO {schema}.inbox (key_hash, scope, source, topic, partition, "offset", message_id, tenant, fingerprint, fingerprint_version,
                                message_time, field_digests, kept, attempt_id)
    SELECT key_hash, coalesce(scope, ($2::int[])[1]), coalesce(source, ($3::int[])[1]), coalesce(topic, ($4::int[])[1]),
           coalesce(partition, ($5::int[])[1]), "offset", message_id, tenant, fingerprint, coalesce(fingerprint_version, ($10::smallint[])[1]),
           to_timestamp(message_time), field_digests, kept::json, $14::uuid
    FROM unnest($1::uuid[], $2::int[], $3::int[], $4::int[], $5::int[], $6::bigint[], $7::text[], $8::text[], $9::bytea[], $10::smallint[],
                $11::float8[], $12::bytea[], $13::text[])
         AS claim (key_hash, scope, source, topic, partition, "offset", message_id, tenant, fingerprint, fingerprint_version,
                   message_time, field_digests, kept)
    ORDER BY key_hash
    ON CONFLICT (key_hash) DO NOTHING
    RETURNING key_hash
)
SELECT key_hash FROM unnest($1::uuid[]) AS wanted (key_hash) WHERE NOT EXISTS (SELECT FROM claimed WHERE claimed.key_hash = wanted.key_hash)
