INSERT INTO {schema}.duplicate (key_hash, topic, partition, "offset")
SELECT * FROM unnest($1::uuid[], $2::int[], $3::int[], $4::bigint[])
