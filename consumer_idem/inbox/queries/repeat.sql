-- An array that is too short ends in NULLs: topic and partition are given once if they are the same for all.
INSERT INTO {schema}.duplicate (key_hash, topic, partition, "offset")
SELECT key_hash, coalesce(topic, ($2::int[])[1]), coalesce(partition, ($3::int[])[1]), "offset"
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::bigint[]) AS copy (key_hash, topic, partition, "offset")
