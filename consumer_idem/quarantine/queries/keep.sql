-- A release that was rolled back: the entry stays open with what came of it. A conflict that has come to light needs a person.
WITH kept AS (
    UPDATE {schema}.quarantine
    SET error = $2, attempts = attempts + $3::int,
        reason = coalesce($4, reason), fields = CASE WHEN $4 IS NULL THEN fields ELSE $5::text[] END,
        release_at = CASE WHEN $4 IS NULL THEN release_at END,
        key_hash = coalesce(key_hash, $6::uuid), tenant = coalesce(tenant, $7), message_id = coalesce(message_id, $8)
    WHERE id = $1::bigint AND state = 'open'
    RETURNING id
)
INSERT INTO {schema}.quarantine_audit (entry, action, operator, note, outcome, error, new_id, edited)
SELECT id, 'release', $9, $10, $11, $2, $12, $13::bytea FROM kept
RETURNING entry
