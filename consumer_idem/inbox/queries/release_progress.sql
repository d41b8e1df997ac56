UPDATE {schema}.progress SET owner = NULL, updated_at = clock_timestamp()
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $4::bigint AND owner = $5::uuid
