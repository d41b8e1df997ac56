UPDATE {schema}.progress SET next_offset = GREATEST(next_offset, $5::bigint), updated_at = clock_timestamp()
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $4::bigint
