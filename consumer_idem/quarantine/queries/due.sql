-- Counted, and put off to its next time, before the handler runs: so a crash counts, and no other worker takes it meanwhile.
WITH due AS (
    SELECT entry.id, entry.releases, policy.first, policy.longest, policy.most
    FROM {schema}.quarantine AS entry
    JOIN unnest($2::int[], $3::interval[], $4::interval[], $5::int[]) AS policy (scope, first, longest, most) ON policy.scope = entry.scope
    WHERE entry.state = 'open' AND entry.release_at <= statement_timestamp() AND entry.consumer_group = $1
    ORDER BY entry.release_at
    LIMIT 1
    FOR UPDATE OF entry SKIP LOCKED
)
UPDATE {schema}.quarantine AS entry
SET releases = due.releases + 1,
    release_at = CASE WHEN due.releases + 1 < due.most
        THEN statement_timestamp() + least(due.longest, due.first * power(2, least(due.releases + 1, 30))) * (0.5 + random() / 2) END
FROM due
WHERE entry.id = due.id
RETURNING entry.id
