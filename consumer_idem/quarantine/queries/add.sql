-- One entry per message and scope, in every state: what is delivered again after a crash is still one entry.
INSERT INTO {schema}.quarantine (state, reason, error, fields, consumer_group, scope, source, key_hash, tenant, message_id,
                                 fingerprint, fingerprint_version, kept, topic, partition, "offset", message_time,
                                 key, value, headers, attempts, release_at, settled_at)
SELECT state, reason, error, ARRAY (SELECT json_array_elements_text(fields::json)), consumer_group, scope, source, key_hash, tenant, message_id,
       fingerprint, fingerprint_version, kept::json, topic, partition, "offset", message_time,
       key, value, headers::json, attempts, statement_timestamp() + release_after,
       CASE WHEN state = 'closed' THEN statement_timestamp() END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::int[], $8::uuid[], $9::text[], $10::text[],
            $11::bytea[], $12::smallint[], $13::text[], $14::int[], $15::int[], $16::bigint[], $17::timestamptz[],
            $18::bytea[], $19::bytea[], $20::text[], $21::int[], $22::interval[])
     AS entry (state, reason, error, fields, consumer_group, scope, source, key_hash, tenant, message_id,
               fingerprint, fingerprint_version, kept, topic, partition, "offset", message_time,
               key, value, headers, attempts, release_after)
ON CONFLICT DO NOTHING
