-- What was counted is kept with the quarantine entry, if that is what became of the message. The last mark was of a run that never began.
WITH counted AS (
    DELETE FROM {schema}.attempt WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND "offset" = $4::bigint
    RETURNING failures + greatest(crashes - 1, 0) AS runs
)
UPDATE {schema}.quarantine SET attempts = attempts + counted.runs
FROM counted
WHERE consumer_group = $1 AND topic = $2::int AND partition = $3::int AND "offset" = $4::bigint AND state = 'open'
