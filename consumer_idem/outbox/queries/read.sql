-- $1 floor, $2 the count of changes for which the floor holds, $3 shards, $4 topics to leave out, $5 ids in memory, $6 rows, $7 bytes.
-- Always at least one row: the count of changes, seen in the same snapshot as the records.
SELECT head.change, record.*
FROM (SELECT sum(change)::bigint AS change FROM {schema}.outbox_shard) AS head
LEFT JOIN LATERAL (
    SELECT id, message_id, shard, topic, key, value, headers::text AS headers, type, source,
           to_char(coalesce(message_time, created_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS time
    FROM (
        SELECT next.*, sum(coalesce(octet_length(next.value), 0)) OVER (ORDER BY next.id ROWS UNBOUNDED PRECEDING) AS bytes,
               row_number() OVER (ORDER BY next.id) AS place
        FROM {schema}.outbox AS next
        WHERE next.id > CASE WHEN head.change = $2::bigint THEN $1::bigint ELSE 0 END
          AND next.state = 'p'
          AND next.shard = ANY ($3::smallint[])
          AND next.topic <> ALL ($4::text[])
          AND next.id NOT IN (SELECT unnest($5::text::bigint[]))
          -- Nothing overtakes a parked record of its key. A null key equals none, so it blocks nothing.
          AND NOT EXISTS (
              SELECT FROM {schema}.outbox AS parked
              WHERE parked.state = 'x' AND parked.shard = next.shard AND parked.id < next.id
                AND parked.topic = next.topic AND parked.key = next.key
          )
        ORDER BY next.id
        LIMIT $6::bigint
    ) AS page
    -- The first record always fits.
    WHERE bytes <= $7::bigint OR place = 1
    ORDER BY id
) AS record ON true
