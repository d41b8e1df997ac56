SELECT action, operator, reason, at, message_id, topic, error FROM {schema}.outbox_audit WHERE record = $1::bigint ORDER BY id
