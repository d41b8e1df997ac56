WITH parked AS (
    SELECT id, message_id, shard, topic, key, created_at, error
    FROM {schema}.outbox
    WHERE id = ANY ($1::bigint[]) AND state = 'x'
    ORDER BY id
    FOR UPDATE
), retried AS (
    UPDATE {schema}.outbox AS record SET state = 'p', error = NULL FROM parked WHERE record.id = parked.id
), changed AS (
    UPDATE {schema}.outbox_shard SET change = change + 1 WHERE shard IN (SELECT shard FROM parked)
), audited AS (
    INSERT INTO {schema}.outbox_audit (action, operator, reason, record, message_id, topic, key, created_at, error)
    SELECT 'retry', $2::text, $3::text, id, message_id, topic, key, created_at, error FROM parked
    RETURNING record
)
SELECT record, pg_notify('{schema}_outbox', '') FROM audited ORDER BY record
