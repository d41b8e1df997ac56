-- Sorted, so that two workers take the same keys in the same order and cannot deadlock.
-- An array that is too short ends in NULLs: what is the same in all rows is given once.
-- Times are seconds since 1970, which a client sends faster than a timestamptz.
INSERT INTO {schema}.inbox (key_hash, attempt_id, scope, source, topic, partition, "offset", message_time,
                            message_id, tenant, fingerprint, fingerprint_version, field_digests, kept)
SELECT key_hash, $1::uuid, coalesce(scope, ($3::int[])[1]), coalesce(source, ($4::int[])[1]), coalesce(topic, ($5::int[])[1]),
       coalesce(partition, ($6::int[])[1]), "offset", to_timestamp(message_time),
       message_id, tenant, fingerprint, coalesce(fingerprint_version, ($12::smallint[])[1]), field_digests, kept::json
FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::int[], $7::bigint[], $8::float8[],
            $9::text[], $10::text[], $11::bytea[], $12::smallint[], $13::bytea[], $14::text[])
     AS claim (key_hash, scope, source, topic, partition, "offset", message_time,
               message_id, tenant, fingerprint, fingerprint_version, field_digests, kept)
ORDER BY key_hash
ON CONFLICT (key_hash) DO NOTHING
