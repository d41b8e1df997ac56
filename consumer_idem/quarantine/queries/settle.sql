-- The seal of a release: it settles the entry, or finds no row and nothing of the release is committed.
WITH settled AS (
    UPDATE {schema}.quarantine
    SET state = $3, settled_at = statement_timestamp(), release_at = NULL,
        key_hash = coalesce(key_hash, $4::uuid), tenant = coalesce(tenant, $5), message_id = coalesce(message_id, $6)
    WHERE id = $1::bigint AND state = 'open' AND current_setting('idem.attempt', true) = $2::uuid::text
    RETURNING id
), audited AS (
    INSERT INTO {schema}.quarantine_audit (entry, action, operator, note, outcome, error, new_id, edited, attempt)
    SELECT id, 'release', $7, $8, $9, $10, $11, $12::bytea, $2::uuid FROM settled
)
SELECT set_config('idem.sealed', $2::uuid::text, true) FROM settled
