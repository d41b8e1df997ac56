SELECT inbox.key_hash, inbox.status::text AS status, inbox.message_id, inbox.tenant, inbox.claimed_at, inbox.message_time,
       topic.name AS topic, inbox.partition, inbox."offset", scope.name AS scope, source.name AS source,
       inbox.generation, inbox.kept::text AS kept, answer.code, answer.detail
FROM {schema}.inbox
JOIN {schema}.scope ON scope.id = inbox.scope
JOIN {schema}.source ON source.id = inbox.source
JOIN {schema}.topic ON topic.id = inbox.topic
LEFT JOIN {schema}.answer USING (key_hash)
WHERE inbox.key_hash = $1::uuid
