-- $1 and $2 acknowledged records; $3 and $4 by whom: the shard must still be ours, under the epoch in which we read the record.
DELETE FROM {schema}.outbox AS record
USING unnest($1::text::bigint[], $2::text::uuid[]) AS sent (id, message_id), {schema}.outbox_shard AS owned
WHERE record.id = sent.id
  -- A database that went back in time gives ids again, for other records.
  AND record.message_id = sent.message_id
  AND owned.shard = record.shard
  AND owned.owner = $3::uuid
  AND owned.epoch = ($4::bigint[])[record.shard + 1]
