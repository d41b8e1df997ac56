UPDATE {schema}.progress
SET next_offset = LEAST(next_offset, $5::bigint), mark_offset = $6::bigint, mark_epoch = $7::int, updated_at = clock_timestamp()
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $4::bigint
