-- The keys stay taken. A key that another message holds, in a conflict, is not touched, even if that one lay at the same position of a topic
-- that was made anew.
WITH discarded AS (
    UPDATE {schema}.quarantine SET state = 'discarded', settled_at = statement_timestamp(), release_at = NULL
    WHERE id = ANY ($1::bigint[]) AND state = 'open'
    RETURNING id, reason, key_hash, topic, partition, "offset"
), inbox AS (
    UPDATE {schema}.inbox SET status = 'd'
    FROM discarded
    WHERE inbox.key_hash = discarded.key_hash AND inbox.status = 'q' AND discarded.reason <> 'conflict'
      AND (inbox.topic, inbox.partition, inbox."offset") = (discarded.topic, discarded.partition, discarded."offset")
)
INSERT INTO {schema}.quarantine_audit (entry, action, operator, note)
SELECT id, 'discard', $2, $3 FROM discarded ORDER BY id
RETURNING entry
