-- Only rows that this transaction inserted: a duplicate's own outcome never touches the row of an earlier message.
WITH dropped AS (
    DELETE FROM {schema}.inbox WHERE key_hash = ANY ($2::uuid[]) AND attempt_id = $1::uuid
), settled AS (
    UPDATE {schema}.inbox SET status = outcome.status::"char"
    FROM unnest($3::uuid[], $4::text[]) AS outcome (key_hash, status)
    WHERE inbox.key_hash = outcome.key_hash AND inbox.attempt_id = $1::uuid
)
SELECT 1
