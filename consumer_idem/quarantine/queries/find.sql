SELECT entry.id, entry.state, entry.reason, entry.error, entry.fields, topic.name AS topic, entry.partition, entry."offset",
       entry.message_id, entry.attempts, entry.release_at, entry.quarantined_at, entry.settled_at
FROM {schema}.quarantine AS entry JOIN {schema}.topic ON topic.id = entry.topic
WHERE entry.key_hash = $1::uuid
ORDER BY entry.id
