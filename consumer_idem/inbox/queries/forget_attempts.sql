DELETE FROM {schema}.attempt WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND "offset" = $4::bigint
