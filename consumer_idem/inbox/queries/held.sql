SELECT inbox.key_hash, inbox.attempt_id, inbox.scope, inbox.source, inbox.tenant, inbox.message_id,
       inbox.topic, inbox.partition, inbox."offset",
       inbox.fingerprint, inbox.fingerprint_version, inbox.field_digests, answer.code, answer.detail
FROM {schema}.inbox LEFT JOIN {schema}.answer USING (key_hash)
WHERE inbox.key_hash = ANY ($1::uuid[]) AND inbox.attempt_id <> $2::uuid
