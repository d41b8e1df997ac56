-- NULL: whatever it is. $7 only above this id, $8 at most so many.
SELECT entry.id, entry.state, entry.reason, entry.error, entry.fields, scope.name AS handler, topic.name AS topic, entry.partition,
       entry."offset", entry.message_id, entry.attempts, entry.release_at, entry.quarantined_at, entry.settled_at
FROM {schema}.quarantine AS entry
JOIN {schema}.topic ON topic.id = entry.topic
LEFT JOIN {schema}.scope ON scope.id = entry.scope
WHERE ($1::text IS NULL OR entry.state = $1::text)
  AND ($2::text IS NULL OR entry.reason = $2::text)
  AND ($3::text IS NULL OR scope.name = $3::text)
  AND ($4::text IS NULL OR topic.name = $4::text)
  AND ($5::timestamptz IS NULL OR entry.quarantined_at >= $5::timestamptz)
  AND ($6::text IS NULL OR entry.message_id = $6::text)
  AND entry.id > $7::bigint
ORDER BY entry.id
LIMIT $8::bigint
