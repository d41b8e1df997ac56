SELECT action, operator, note, at, outcome, error, new_id, edited FROM {schema}.quarantine_audit WHERE entry = $1::bigint ORDER BY id
