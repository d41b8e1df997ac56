-- Written before the run: if the process dies in it, the next one finds the mark. $7: mark it again if there is one.
INSERT INTO {schema}.attempt (consumer_group, topic, partition, "offset", crashes)
SELECT $1, $2::int, $3::int, $4::bigint, 1
WHERE EXISTS (SELECT FROM {schema}.progress
              WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $5::bigint AND owner = $6::uuid)
ON CONFLICT (consumer_group, topic, partition, "offset")
DO UPDATE SET crashes = attempt.crashes + 1, updated_at = clock_timestamp() WHERE attempt.crashes = 0 OR $7::bool
RETURNING crashes
