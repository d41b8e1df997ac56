-- Only while the lane is still ours: a fenced worker's failures are not the message's.
INSERT INTO {schema}.attempt (consumer_group, topic, partition, "offset", failures, last_error)
SELECT $1, $2::int, $3::int, $4::bigint, 1, $5
WHERE $7::uuid IS NULL OR EXISTS (SELECT FROM {schema}.progress
              WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $6::bigint AND owner = $7::uuid)
ON CONFLICT (consumer_group, topic, partition, "offset")
DO UPDATE SET failures = attempt.failures + 1, last_error = excluded.last_error, updated_at = clock_timestamp()
RETURNING failures
