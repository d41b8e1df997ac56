SELECT entry.id, entry.state, entry.reason, entry.error, entry.fields, topic.name AS topic, entry.partition, entry."offset",
       entry.message_id, entry.attempts, entry.quarantined_at, entry.settled_at
FROM {schema}.quarantine AS entry JOIN {schema}.topic ON topic.id = entry.topic
WHERE entry.state = 'open' AND ($1::text IS NULL OR entry.reason = $1::text)
ORDER BY entry.quarantined_at DESC, entry.id DESC
LIMIT $2::int
