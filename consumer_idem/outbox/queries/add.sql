-- An array that is too short ends in NULLs: topic and source are given once if they are the same in all records.
-- Times are seconds since 1970, which a client sends faster than a timestamptz.
WITH added AS (
    INSERT INTO {schema}.outbox (message_id, shard, topic, key, value, headers, type, source, message_time)
    SELECT message_id, shard, coalesce(topic, ($3::text[])[1]), key, value, headers::json, type, coalesce(source, ($8::text[])[1]), to_timestamp(message_time)
    FROM unnest($1::uuid[], $2::smallint[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::text[], $8::text[], $9::float8[])
         WITH ORDINALITY AS record (message_id, shard, topic, key, value, headers, type, source, message_time, place)
    -- Ids ascend in this order.
    ORDER BY place
)
-- At most one notification per transaction, and none while the relays are awake anyway.
SELECT pg_notify('{schema}_outbox', '')
WHERE EXISTS (
    SELECT FROM {schema}.outbox_relay AS relay
    JOIN {schema}.outbox_shard AS owned ON owned.owner = relay.owner
    WHERE relay.idle AND owned.shard = ANY ($2::smallint[])
)
