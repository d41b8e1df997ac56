SELECT topic.name AS topic, duplicate.partition, duplicate."offset", duplicate.seen_at
FROM {schema}.duplicate JOIN {schema}.topic ON topic.id = duplicate.topic
WHERE duplicate.key_hash = $1::uuid
ORDER BY duplicate.seen_at, topic.name, duplicate.partition, duplicate."offset"
