-- Written before the run: if the process dies in it, the next one finds the mark.
INSERT INTO {schema}.attempt (consumer_group, topic, partition, "offset", crashes)
SELECT $1, $2::int, $3::int, $4::bigint, 1
WHERE EXISTS (SELECT FROM {schema}.progress
              WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $5::bigint AND owner = $6::uuid)
ON CONFLICT (consumer_group, topic, partition, "offset")
DO UPDATE SET crashes = attempt.crashes + 1, updated_at = clock_timestamp()
RETURNING crashes
