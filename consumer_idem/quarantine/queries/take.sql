-- Whoever releases or discards an entry takes it first, and its key by a later statement: only that one's snapshot sees
-- what the transaction that was waited for has left.
SELECT id FROM {schema}.quarantine WHERE id = ANY ($1::bigint[]) AND state = 'open' ORDER BY id FOR UPDATE
