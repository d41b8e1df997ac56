INSERT INTO {schema}.progress (consumer_group, topic, partition, next_offset, first_offset, owner, batch_limit)
VALUES ($1, $2::int, $3::int, $4::bigint, $4::bigint, $5::uuid, $6::int)
ON CONFLICT DO NOTHING
RETURNING epoch
