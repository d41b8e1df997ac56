UPDATE {schema}.attempt SET crashes = GREATEST(crashes - 1, 0), updated_at = clock_timestamp()
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND "offset" = $4::bigint
