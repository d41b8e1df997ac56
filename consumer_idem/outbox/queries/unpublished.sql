SELECT id, message_id, topic, state::text AS state, created_at, error
FROM {schema}.outbox WHERE message_id = ANY ($1::uuid[])
ORDER BY id
