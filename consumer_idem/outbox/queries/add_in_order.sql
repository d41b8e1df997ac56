-- An array that is too short ends in NULLs: topic and source are given once if they are the same in all records.
-- Times are seconds since 1970, which a client sends faster than a timestamptz.
WITH turn AS MATERIALIZED (
    -- One lock per key, in one order everywhere. They are held until the transaction ends, so that ids and commits of a key agree.
    SELECT count(pg_advisory_xact_lock(lock.key)) AS locks
    FROM (SELECT DISTINCT hashtextextended(coalesce(topic, ($3::text[])[1]), 0) # hashtextextended(encode(key, 'hex'), 1) AS key
          FROM unnest($3::text[], $4::bytea[]) AS record (topic, key)
          WHERE key IS NOT NULL
          ORDER BY 1) AS lock
), added AS (
    INSERT INTO {schema}.outbox (message_id, shard, topic, key, value, headers, type, source, message_time)
    SELECT message_id, shard, coalesce(topic, ($3::text[])[1]), key, value, headers::json, type, coalesce(source, ($8::text[])[1]), to_timestamp(message_time)
    FROM turn,
         unnest($1::uuid[], $2::smallint[], $3::text[], $4::bytea[], $5::bytea[], $6::text[], $7::text[], $8::text[], $9::float8[])
         WITH ORDINALITY AS record (message_id, shard, topic, key, value, headers, type, source, message_time, place)
    WHERE turn.locks >= 0
    ORDER BY place
)
SELECT pg_notify('{schema}_outbox', '')
WHERE EXISTS (
    SELECT FROM {schema}.outbox_relay AS relay
    JOIN {schema}.outbox_shard AS owned ON owned.owner = relay.owner
    WHERE relay.idle AND owned.shard = ANY ($2::smallint[])
)
