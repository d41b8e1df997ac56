-- $1 and $2 acknowledged records; $3 and $4 by whom: the shard must still be ours, under the epoch in which we read the record.
DELETE FROM {schema}.outbox
WHERE id = ANY (ARRAY(
    SELECT record.id
    FROM unnest($1::text::bigint[], $2::text::uuid[]) AS sent (id, message_id)
    -- One look into the primary key for each, whatever the planner believes about the table's size.
    CROSS JOIN LATERAL (
        SELECT next.id, next.shard
        FROM {schema}.outbox AS next
        -- A database that went back in time gives ids again, for other records.
        WHERE next.id = sent.id AND next.message_id = sent.message_id
        OFFSET 0
    ) AS record
    JOIN {schema}.outbox_shard AS owned
      ON owned.shard = record.shard
     AND owned.owner = $3::uuid
     AND owned.epoch = ($4::bigint[])[record.shard + 1]
))
