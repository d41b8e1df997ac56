UPDATE {schema}.progress
SET next_offset = GREATEST(next_offset, $7::bigint), updated_at = clock_timestamp()
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $4::bigint AND owner = $5::uuid
  AND next_offset >= $6::bigint AND current_setting('idem.attempt', true) = $8::text
RETURNING set_config('idem.sealed', $8::text, true)
