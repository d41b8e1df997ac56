-- One entry per position and scope, in every state: what is delivered again after a crash is still one entry.
INSERT INTO {schema}.quarantine (state, reason, error, fields, consumer_group, scope, source, key_hash, tenant, message_id,
                                 fingerprint, fingerprint_version, topic, partition, "offset", message_time,
                                 key, value, headers, attempts, settled_at)
SELECT state, reason, error, ARRAY (SELECT json_array_elements_text(fields::json)), consumer_group, scope, source, key_hash, tenant, message_id,
       fingerprint, fingerprint_version, topic, partition, "offset", message_time,
       key, value, headers::json, attempts, CASE WHEN state = 'closed' THEN statement_timestamp() END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::int[], $8::uuid[], $9::text[], $10::text[],
            $11::bytea[], $12::smallint[], $13::int[], $14::int[], $15::bigint[], $16::timestamptz[],
            $17::bytea[], $18::bytea[], $19::text[], $20::int[])
     AS entry (state, reason, error, fields, consumer_group, scope, source, key_hash, tenant, message_id,
               fingerprint, fingerprint_version, topic, partition, "offset", message_time,
               key, value, headers, attempts)
ON CONFLICT DO NOTHING
