UPDATE {schema}.progress
SET next_offset = GREATEST(next_offset, $7::bigint), updated_at = clock_timestamp(),
    mark_offset = CASE WHEN $9::int IS NOT NULL AND $7::bigint >= next_offset THEN $7::bigint - 1 ELSE mark_offset END,
    mark_epoch = CASE WHEN $9::int IS NOT NULL AND $7::bigint >= next_offset THEN $9::int ELSE mark_epoch END
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND epoch = $4::bigint AND owner = $5::uuid
  AND next_offset >= $6::bigint AND current_setting('idem.attempt', true) = $8::text
RETURNING set_config('idem.sealed', $8::text, true)
