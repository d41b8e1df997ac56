WITH dropped AS (
    DELETE FROM {schema}.outbox
    WHERE id IN (SELECT id FROM {schema}.outbox WHERE id = ANY ($1::bigint[]) AND state IN ('x', 'p') ORDER BY id FOR UPDATE)
    RETURNING id, message_id, shard, topic, key, created_at, error
), changed AS (
    UPDATE {schema}.outbox_shard SET change = change + 1 WHERE shard IN (SELECT shard FROM dropped)
), audited AS (
    INSERT INTO {schema}.outbox_audit (action, operator, reason, record, message_id, topic, key, created_at, error)
    SELECT 'drop', $2::text, $3::text, id, message_id, topic, key, created_at, error FROM dropped
    RETURNING record
)
SELECT record, pg_notify('{schema}_outbox', '') FROM audited ORDER BY record
