UPDATE {schema}.outbox AS record SET state = 'x', error = unfit.error
FROM unnest($1::text::bigint[], $2::text::uuid[], $5::text[]) AS unfit (id, message_id, error), {schema}.outbox_shard AS owned
WHERE record.id = unfit.id
  AND record.id = ANY ($1::text::bigint[])
  AND record.message_id = unfit.message_id
  AND record.state = 'p'
  AND owned.shard = record.shard
  AND owned.owner = $3::uuid
  AND owned.epoch = ($4::bigint[])[record.shard + 1]
