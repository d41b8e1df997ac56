SELECT entry.id, entry.state, entry.reason, entry.error, entry.fields, entry.consumer_group, scope.name AS scope, source.name AS source,
       entry.tenant, entry.message_id, topic.name AS topic, entry.partition, entry."offset", entry.message_time, entry.attempts,
       entry.releases, entry.release_at, entry.quarantined_at, entry.settled_at, entry.key, entry.value, entry.headers::text AS headers,
       entry.kept::text AS kept, entry.key_hash, entry.scope AS scope_id, entry.topic AS topic_id
FROM {schema}.quarantine AS entry
JOIN {schema}.topic ON topic.id = entry.topic
LEFT JOIN {schema}.scope ON scope.id = entry.scope
LEFT JOIN {schema}.source ON source.id = entry.source
WHERE entry.id = $1::bigint
